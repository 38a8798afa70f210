"The playground and the digits of a page in Chromium, by touch and by mouse"
import time
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.support.wait import WebDriverWait

def drive(browser, kind):
    "What is wrong with them; `kind`: by what they are driven, touch or mouse"
    problems = []

    def check(ok, what):
        if not ok: problems.append(what)

    def find(part, box='.dec-playground'):
        return browser.find_element('css selector', f'{box} [data-part={part}]')

    def step(): return int(find('status').text.split()[-1])

    def into_view(element):
        browser.execute_script('arguments[0].scrollIntoView({block: "center"})', element)

    browser.execute_script('document.documentElement.style.scrollBehavior = "auto"')
    into_view(find('plane'))
    bars = find('bars').text
    drag = ActionChains(browser, devices=[PointerInput(kind, kind)]).move_to_element(find('chosen'))
    drag.click_and_hold().move_by_offset(35, -20).release().perform()
    check(find('bars').text != bars, 'q and p stay when a point is dragged')

    bars, centre = find('bars').text, browser.find_element('css selector', '.centre')
    browser.execute_script('arguments[0].focus()', centre)
    centre.send_keys(Keys.ARROW_UP * 5)
    check(find('bars').text != bars, 'q and p stay when a centroid moves')

    find('play').click()
    time.sleep(.5)
    first, begun = step(), time.monotonic()
    time.sleep(2)
    frames = (step() - first)/(time.monotonic() - begun)
    find('play').click()
    check(frames >= 30, f'the playground makes {frames:.0f} frames a second')

    status, grid = find('status', '.dec-digits'), find('grid', '.dec-digits')
    find('run', '.dec-digits').click()
    WebDriverWait(browser, 40).until(lambda _: 'DEC after 300' in status.text)
    into_view(grid)
    stroke = ActionChains(browser).move_to_element_with_offset(grid, 0, -60).click_and_hold()
    stroke.move_by_offset(0, 60).move_by_offset(0, 60).release().perform()
    check('It joins' in find('joins', '.dec-digits').text, 'no cluster for a drawn digit')

    # where a user wants no motion, play makes steps and shows the last
    still = dict(name='prefers-reduced-motion', value='reduce')
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', dict(features=[still]))
    find('reset').click()
    find('play').click()
    steps = step()
    time.sleep(.3)
    check(steps == step() == 25, 'the playground moves, though no motion is wanted')
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', dict(features=[]))
    return problems

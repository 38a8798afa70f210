// What is wrong with the page: run in it by .ci/pages, which gets the list by a callback
const [width, last, done] = arguments, bad = []
const all = selector => [...document.querySelectorAll(selector)]
const begins = e => `${e.tagName} ${e.textContent.trim().replace(/\s+/g, ' ').slice(0, 60)}`

function formulas() {
  if (/ at 0x[0-9a-f]{6}/.test(document.body.textContent)) bad.push('an address in memory')
  all('mjx-merror').forEach(e => bad.push('broken formula: ' + e.textContent))
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const text = texts.currentNode
    if (text.parentElement.closest('code, pre, script, style, mjx-container')) continue
    const formula = text.data.match(/\$[^$]+\$|\\[a-zA-Z]{2,}/)
    if (formula) bad.push('unrendered formula: ' + formula[0])
    const markdown = text.data.match(/\]\(|\*\*\w[^*]*\*\*|:::|^#+ |\{[.#=]\w+/)
    if (markdown) bad.push('raw Markdown: ' + text.data.trim().slice(0, 60))
  }
}

function sizes() {
  const folded = all('details:not([open])'), tall = document.body.scrollHeight > 42000
  if (width < 600 && folded.length && tall) bad.push('the page is too long')
  for (const fold of folded) fold.open = true
  if (document.documentElement.scrollWidth > width) {
    const out = all('body :not(pre *, table *, mjx-container *)')
      .find(e => e.getBoundingClientRect().right > width + 1)
    bad.push('the page is too wide: ' + (out ? begins(out) : ''))
  }
  if (width < 1200) return
  for (const code of all('main :is(pre, table)')) {
    const clips = [code, code.parentElement].some(e => e.scrollWidth > e.clientWidth + 1)
    if (clips) bad.push('clipped: ' + begins(code))
  }
}

function pictures() {
  all('img').forEach((e, i) => {
    if (e.alt.trim().length < 10 || e.alt.startsWith('No description'))
      bad.push(`picture ${i + 1} has no description (#| fig-alt)`)
  })
}

function quizzes() {
  for (const list of all('#check-yourself ul')) {
    const letter = list.querySelector('li > :is(strong, button):first-child')
    if (letter?.textContent.length !== 1) continue
    for (const option of list.children) option.click()
    const said = list.nextElementSibling
    if (list.querySelectorAll('.right, .wrong').length !== 1 || said.textContent.length < 30)
      bad.push('quiz that does not answer: ' + begins(list))
  }
}

async function slides() {
  const {width, height, slideNumber} = Reveal.getConfig()
  if (!all('#title-slide h1').length) bad.push('slides without a title')
  if (!slideNumber) bad.push('slides without numbers')
  if (!all('.footer a').length) bad.push('slides without a way back')
  for (const slide of Reveal.getSlides()) {
    const {h, v} = Reveal.getIndices(slide)
    Reveal.slide(h, v)
    await pause(30)
    if (slide.scrollHeight > height + 1 || slide.scrollWidth > width + 1)
      bad.push(`slide ${h + 1} overflows (${slide.scrollHeight} high): ${begins(slide)}`)
  }
}

async function access(mode) {
  const {violations} = await axe.run('main', {runOnly: ['wcag2a', 'wcag2aa']})
  for (const {id, nodes} of violations)
    bad.push(`${mode}, ${id} (${nodes.length} ×): ${nodes[0].html.slice(0, 100)}`)
}

const pause = milliseconds => new Promise(next => setTimeout(next, milliseconds))

async function look() { // what has nothing to do with the width is asked only in the last
  if (!window.Reveal) sizes()
  if (!last) return
  formulas()
  pictures()
  if (window.Reveal) return slides()
  quizzes()
  await access('light')
  quartoToggleColorScheme()
  await pause(1000)
  await access('dark')
}
Promise.resolve(window.MathJax?.startup?.promise).then(look)
  .catch(e => bad.push('' + e)).then(() => done(bad))

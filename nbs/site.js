// What the pages do by themselves. Without script they read the same.

// Check yourself: a click on an option marks it and opens its explanation
const lead = block => block.querySelector(':scope > strong:first-child')?.textContent ?? ''

function answersIn(fold) { // number -> the right letter, and the paragraphs that explain it
  const answers = {}
  let answer
  for (const block of fold.children) {
    const [, number, right] = lead(block).match(/^(\d+) ([a-z])\.$/) ?? []
    if (number) answer = answers[number] = {right, blocks: []}
    answer?.blocks.push(block)
  }
  return answers
}

function ask(list, {right, blocks}) {
  const note = document.createElement('div')
  note.className = 'quiz-note'
  note.setAttribute('role', 'status')
  list.after(note)
  list.classList.add('quiz')
  for (const option of list.children) {
    const letter = option.querySelector('strong').textContent
    const button = document.createElement('button')
    button.type = 'button'
    button.textContent = letter
    button.setAttribute('aria-label', `Answer ${letter}`)
    option.querySelector('strong').replaceWith(button)
    option.onclick = event => {
      if (event.target.closest('a')) return
      for (const other of list.children) other.classList.remove('right', 'wrong')
      option.classList.add(letter === right ? 'right' : 'wrong')
      note.replaceChildren(...blocks.map(block => block.cloneNode(true)))
      const verdict = letter === right ? 'Right.' : `Not ${letter}, but ${right}.`
      note.querySelector('strong').textContent = verdict
    }
  }
}

for (const fold of document.querySelectorAll('details')) {
  const answers = answersIn(fold)
  let answer
  for (const block of fold.parentElement.children) {
    answer = answers[lead(block).match(/^(\d+)\.$/)?.[1]] ?? answer
    if (block.tagName === 'UL' && answer) { ask(block, answer); answer = null }
  }
}

// On a phone the sections of a very long page fold behind their headings
if (innerWidth < 600 && document.querySelector('main').textContent.length > 55000) {
  for (const section of document.querySelectorAll('main > section.level2')) {
    const fold = document.createElement('details')
    const heading = document.createElement('summary')
    heading.append(section.querySelector('h2'))
    fold.append(heading, ...section.childNodes)
    section.append(fold)
  }
}

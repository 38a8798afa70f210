// Points and centroids that can be touched: drawing and interaction around steps.js

const ALPHAS = [.1, .2, .5, 1, 2, 5, 10, 30, Infinity]
const LONGEST = 300 // moments that a curve keeps
const LEVELS = 5 // of opacity, from doubt to certainty
const still = matchMedia('(prefers-reduced-motion: reduce)')

function svg(name, attributes, parent) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  parent.append(element)
  return element
}

class Playground {
  constructor(box) {
    this.parts = {}
    for (const e of box.querySelectorAll('[data-part]')) this.parts[e.dataset.part] = e
    this.data = JSON.parse(box.querySelector('script[type="application/json"]').textContent)
    for (const e of box.querySelectorAll('[hidden]')) e.hidden = false
    this.parts.without.remove()
    this.fillControls()
    this.listen(box)
    this.reset()
  }

  // ---- controls

  fillControls() {
    const {scene, alpha, net, target, f, 'wrong-exponent': exponent, never} = this.parts
    const {settings, scenes} = this.data
    for (const {name} of scenes) scene.add(new Option(name))
    scene.value = settings.scene
    alpha.max = ALPHAS.length - 1
    alpha.value = ALPHAS.indexOf(settings.alpha ?? Infinity)
    net.value = settings.network ? 'net' : ''
    target.value = settings.target
    f.value = settings.batch ? '16' : ''
    exponent.checked = settings.wrong_exponent
    never.checked = settings.never
    if (still.matches) this.parts.play.textContent = '25 steps'
  }

  settings() { // of the model, as the controls say
    const {alpha, f, target, never, 'wrong-exponent': exponent} = this.parts
    return {alpha: ALPHAS[alpha.value], batch: +f.value, fOfBatch: f.value !== '',
            target: target.value, wrongExponent: exponent.checked,
            interval: never.checked ? Infinity : 20, rate: .2}
  }

  listen(box) {
    const on = (part, event, what) => this.parts[part].addEventListener(event, what)
    on('play', 'click', () => this.playOrPause())
    on('step', 'click', () => { this.pause(); this.go(1); this.draw() })
    on('reset', 'click', () => this.reset())
    on('scene', 'change', () => this.reset())
    on('net', 'change', () => this.reset())
    for (const part of ['alpha', 'f', 'target', 'never', 'wrong-exponent']) {
      on(part, 'input', () => this.change())
    }
    for (const part of ['every-force', 'in-place']) on(part, 'input', () => this.draw())
    on('plane', 'pointerdown', e => this.grab(e))
    on('plane', 'pointermove', e => { if (this.held) this.drag(this.at(e)) })
    for (const end of ['pointerup', 'pointercancel']) on('plane', end, () => { this.held = null })
    on('plane', 'touchstart', e => { if (this.held) e.preventDefault() }) // or the page would scroll
    on('plane', 'keydown', e => this.key(e))
    box.addEventListener('keydown', e => e.stopPropagation()) // slides listen for arrows, too
  }

  change() { // a setting: the model goes on from where it is, with a target of its own
    Object.assign(this.model, this.settings())
    this.edited()
  }

  edited() {
    const m = this.model
    look(m)
    if (m.t === 0 || m.interval < Infinity) m.p = targetOf(m, m.everyone)
    this.draw()
  }

  // ---- the run

  reset() {
    this.pause()
    const {scene, net} = this.parts
    const {x, k} = this.data.scenes.find(s => s.name === scene.value)
    const points = Float64Array.from(x, v => v/100)
    const network = net.value ? stillNetwork(randomNumbers(1)) : null
    this.parts['in-place'].disabled = !network
    this.model = makeModel(points, 2, kMeans(points, 2, k).mu, {...this.settings(), net: network})
    this.losses = []
    this.sizes = []
    this.every = 1 // step that is kept for the curves
    const {everyone} = this.model, {dz} = gradients(this.model, everyone)
    const size = i => Math.hypot(dz[2*i], dz[2*i + 1])
    this.pick = everyone.reduce((a, b) => size(b) > size(a) ? b : a)
    this.fromLeft = [...everyone].sort((a, b) => points[2*a] - points[2*b])
    this.half = 0
    this.build()
    this.note()
    this.draw()
  }

  go(steps) {
    for (let s = 0; s < steps; s++) {
      this.rows = step(this.model)
      this.note()
    }
  }

  note() { // a moment for the curves; of a long run every second one is dropped, again and again
    const m = this.model, sizes = new Array(m.k).fill(0)
    for (const j of clustersOf(m)) sizes[j]++
    this.now = {loss: klLoss(m.p, m.q, m.everyone, m.k), sizes}
    if (m.t % this.every) return
    this.losses.push(this.now.loss)
    this.sizes.push(sizes)
    if (this.losses.length < LONGEST) return
    this.every *= 2
    this.losses = this.losses.filter((_, i) => i % 2 === 0)
    this.sizes = this.sizes.filter((_, i) => i % 2 === 0)
  }

  playOrPause() {
    if (still.matches) {
      this.go(25)
      this.draw()
    } else if (this.frame) {
      this.pause()
      this.draw()
    } else {
      this.parts.play.textContent = 'pause'
      const next = () => {
        this.frame = requestAnimationFrame(next)
        this.go(1)
        this.draw()
      }
      this.frame = requestAnimationFrame(next)
    }
  }

  pause() {
    cancelAnimationFrame(this.frame)
    this.frame = null
    if (!still.matches) this.parts.play.textContent = 'play'
  }

  // ---- drawing

  build() { // the elements of a scene: dots, a ring a centroid, a row of bars a cluster
    const {dots, centres, bars, sizes} = this.parts, {k} = this.model
    for (const part of [dots, centres, bars, sizes]) part.replaceChildren()
    this.dots = Array.from({length: k}, (_, j) => Array.from({length: LEVELS}, (_, level) => (
      svg('path', {class: `c${j}`, 'stroke-opacity': .3 + .65*level/(LEVELS - 1)}, dots))))
    this.centres = Array.from({length: k}, (_, j) => {
      const g = svg('g', {class: `centre c${j}`, tabindex: 0, role: 'button'}, centres)
      g.dataset.centre = j
      svg('circle', {}, g)
      svg('text', {}, g).textContent = j + 1
      return g
    })
    this.bars = Array.from({length: k}, (_, j) => {
      const row = bars.insertRow()
      row.innerHTML = `<th scope="row" class="c${j}">${j + 1}</th>`
        + '<td><span></span><i class="dec-bar"></i></td>'.repeat(2).replaceAll('<td', `<td class="c${j}"`)
      svg('polyline', {class: `c${j}`, style: `stroke: var(--c${j})`}, sizes)
      return [...row.querySelectorAll('td')]
    })
  }

  places() { // where points are drawn: as codes, or as they lie in the data
    const inPlace = this.model.net && this.parts['in-place'].checked
    return inPlace ? this.model.x : this.model.z
  }

  fit() { // the view grows when something leaves it, and only a reset makes it small again
    const {mu} = this.model, places = this.places()
    let need = 3.6
    for (const v of [places, mu]) {
      for (let c = 0; c < v.length; c += 2) need = Math.max(need, 1.05*Math.abs(v[c])/1.5, 1.05*Math.abs(v[c + 1]))
    }
    if (need > this.half && !this.held) this.half = need
    const h = this.half
    this.parts.plane.setAttribute('viewBox', `${-1.5*h} ${-h} ${3*h} ${2*h}`)
    this.unit = 3*h/(this.parts.plane.clientWidth || 480) // a pixel, in the plane
  }

  draw() {
    this.fit()
    const m = this.model, places = this.places(), u = this.unit
    const {dz} = gradients(m, m.everyone)
    this.drawDots(places)
    this.centres.forEach((g, j) => {
      g.setAttribute('transform', `translate(${m.mu[2*j]} ${-m.mu[2*j + 1]}) scale(${u})`)
      g.firstChild.setAttribute('r', 11)
      g.lastChild.setAttribute('font-size', 14)
      g.setAttribute('aria-label', `centroid ${j + 1}, at ${this.say(m.mu, j)}; arrow keys move it`)
    })
    this.drawChosen(places, dz)
    const every = this.parts['every-force'].checked ? m.everyone : []
    this.parts.forces.setAttribute('d', every.map(i => this.force(places, dz, i)[0]).join(''))
    this.drawBars()
    this.drawCurves()
  }

  drawDots(places) { // all dots of a cluster and a level are one path, which is quick to draw
    const {q, k, everyone} = this.model, paths = this.dots.map(levels => levels.map(() => ''))
    for (const i of everyone) {
      const own = largest(q, i, k), sure = (q[i*k + own] - 1/k)/(1 - 1/k)
      const level = Math.min(LEVELS - 1, Math.floor(LEVELS*sure))
      paths[own][level] += `M${places[2*i].toFixed(3)} ${(-places[2*i + 1]).toFixed(3)}h.001`
    }
    paths.forEach((levels, j) => levels.forEach((d, level) => this.dots[j][level].setAttribute('d', d)))
  }

  force(places, dz, i) { // of point i: a line, and the same with a head
    const x = places[2*i], y = -places[2*i + 1], size = Math.hypot(dz[2*i], dz[2*i + 1])
    if (size < 1e-9) return ['', '']
    const long = Math.min(6*size, this.half/2)/size, u = this.unit
    const dx = -dz[2*i]*long, dy = dz[2*i + 1]*long, angle = Math.atan2(dy, dx)
    const tip = [x + dx, y + dy]
    const side = turn => `L${tip[0] - 9*u*Math.cos(angle + turn)} ${tip[1] - 9*u*Math.sin(angle + turn)}`
    const line = `M${x} ${y}L${tip[0]} ${tip[1]}`
    if (size*long < 9*u) return [line, line]
    return [line, `${line}${side(.5)}M${tip[0]} ${tip[1]}${side(-.5)}`]
  }

  drawChosen(places, dz) {
    const {chosen, arrow} = this.parts, i = this.pick
    chosen.setAttribute('cx', places[2*i])
    chosen.setAttribute('cy', -places[2*i + 1])
    chosen.setAttribute('r', 7*this.unit)
    chosen.setAttribute('aria-label', `point ${i}, at ${this.say(places, i)}; arrow keys move it, `
      + 'N and P choose another')
    const moved = this.parts['in-place'].checked && this.model.net // the force acts on the code
    arrow.setAttribute('d', moved ? '' : this.force(places, dz, i)[1])
  }

  drawBars() {
    const {q, p, k} = this.model, {who, status} = this.parts
    who.textContent = `Point ${this.pick}: q, p, and the force as an arrow`
    this.bars.forEach((cells, j) => [q, p].forEach((row, c) => {
      const value = row[this.pick*k + j], [number, bar] = cells[c].children
      bar.style.width = `calc(${value}*(100% - 2.6rem))`
      number.textContent = value.toFixed(2)
    }))
    // a screen reader is not told of every frame
    status.setAttribute('aria-live', this.frame ? 'off' : 'polite')
    status.textContent = `step ${this.model.t}`
  }

  drawCurves() {
    const {loss, sizes, 'loss-text': lossText, 'sizes-text': sizesText, alpha} = this.parts
    const top = Math.max(...this.losses, 1e-9), last = Math.max(1, this.losses.length - 1)
    const points = (values, most) => values.map((v, t) => `${100*t/last},${38 - 36*v/most}`).join(' ')
    loss.firstElementChild.setAttribute('points', points(this.losses, top))
    for (const [j, line] of [...sizes.children].entries()) {
      line.setAttribute('points', points(this.sizes.map(s => s[j]), this.model.n))
    }
    lossText.textContent = `KL loss ${this.now.loss.toFixed(4)}`
    sizesText.textContent = `sizes ${this.now.sizes.join(' and ')}`
    const name = ALPHAS[alpha.value] === Infinity ? '∞' : ALPHAS[alpha.value]
    this.parts['alpha-text'].textContent = name
    alpha.setAttribute('aria-valuetext', name)
  }

  say(v, i) { return `${v[2*i].toFixed(1)}, ${v[2*i + 1].toFixed(1)}` }

  // ---- mouse, touch and keyboard

  at(e) { // of a pointer, in the plane
    const matrix = this.parts.plane.getScreenCTM().inverse()
    const {x, y} = new DOMPoint(e.clientX, e.clientY).matrixTransform(matrix)
    return [x, -y]
  }

  nearest(values, [x, y], within) { // of rows, or null
    let best = null, least = within**2
    for (let i = 0; i < values.length/2; i++) {
      const d2 = (values[2*i] - x)**2 + (values[2*i + 1] - y)**2
      if (d2 < least) [best, least] = [i, d2]
    }
    return best
  }

  grab(e) {
    const at = this.at(e), centre = this.nearest(this.model.mu, at, 16*this.unit)
    const point = this.nearest(this.places(), at, 22*this.unit)
    if (centre === null && point === null) return
    this.held = centre === null ? {point} : {centre}
    this.held.at = at
    if (centre === null) this.pick = point
    this.parts.plane.setPointerCapture(e.pointerId)
    this.draw()
  }

  drag(at) {
    const [dx, dy] = [at[0] - this.held.at[0], at[1] - this.held.at[1]]
    this.held.at = at
    this.move(this.held, dx, dy)
  }

  move({centre, point}, dx, dy) {
    const {mu, x, z, net} = this.model
    const moved = centre !== undefined ? [mu, centre] : [x, point]
    if (moved[0] === x) this.model.walk = null
    for (const [values, i] of net || moved[0] === mu ? [moved] : [moved, [z, point]]) {
      values[2*i] += dx
      values[2*i + 1] += dy
    }
    this.edited()
  }

  key(e) {
    const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[e.key]
    const held = e.target.closest('.centre')
    const turn = {n: 1, p: -1}[e.key.toLowerCase()]
    if (way) {
      const by = (e.shiftKey ? 30 : 6)*this.unit
      const what = held ? {centre: +held.dataset.centre} : {point: this.pick}
      this.move(what, by*way[0], by*way[1])
    } else if (turn) {
      const place = this.fromLeft.indexOf(this.pick) + turn, n = this.model.n
      this.pick = this.fromLeft[(place + n) % n]
      this.draw()
    } else return
    e.preventDefault()
  }
}

for (const box of document.querySelectorAll('.dec-playground:not([data-on])')) {
  box.dataset.on = ''
  new Playground(box)
}

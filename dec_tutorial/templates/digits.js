// DEC on digits, from k-means to the last step, and a digit of one's own

const SIDE = 8, CELL = 20, INK = 16 // cells of a picture, pixels of a cell, the darkest ink
const STEPS = 300
const still = matchMedia('(prefers-reduced-motion: reduce)')

function bytes(text) { // int8 numbers from base64
  return Int8Array.from(atob(text), c => c.charCodeAt(0))
}

function paint(canvas, picture, cell) { // inks from 0 to INK as grey squares
  const pen = canvas.getContext('2d')
  picture.forEach((ink, i) => {
    const grey = Math.round(255*(1 - ink/INK))
    pen.fillStyle = `rgb(${grey} ${grey} ${grey})`
    pen.fillRect(cell*(i % SIDE), cell*Math.floor(i/SIDE), cell, cell)
  })
}

function turnAxes(axes, z, d) { // some steps of power iteration towards the two main axes of z
  const n = z.length/d, mean = new Float64Array(d)
  for (let i = 0; i < z.length; i++) mean[i % d] += z[i]/n
  axes.forEach((axis, which) => {
    for (let round = 0; round < 5; round++) {
      const next = new Float64Array(d)
      for (let i = 0; i < n; i++) {
        let along = 0
        for (let c = 0; c < d; c++) along += (z[i*d + c] - mean[c])*axis[c]
        for (let c = 0; c < d; c++) next[c] += along*(z[i*d + c] - mean[c])
      }
      if (which === 1) {
        const overlap = next.reduce((sum, v, c) => sum + v*axes[0][c], 0)
        next.forEach((v, c) => { next[c] -= overlap*axes[0][c] })
      }
      const length = Math.hypot(...next)
      next.forEach((v, c) => { axis[c] = v/length })
    }
  })
  return mean
}

class Digits {
  constructor(box) {
    this.parts = {}
    for (const e of box.querySelectorAll('[data-part]')) this.parts[e.dataset.part] = e
    this.data = JSON.parse(box.querySelector('script[type="application/json"]').textContent)
    for (const e of box.querySelectorAll('[hidden]')) e.hidden = false
    this.parts.without.remove()
    this.inks = Array.from(this.data.pixels, c => parseInt(c, 36)) // a character a pixel
    this.classes = Array.from(this.data.labels, Number)
    this.dots = [...this.parts.dots.children] // a path for all dots of a cluster
    this.means = Array.from({length: 10}, () => this.meanPicture())
    this.mine = new Array(SIDE*SIDE).fill(0)
    this.cursor = 0
    this.listen()
    this.reset()
  }

  meanPicture() {
    const item = document.createElement('li'), canvas = document.createElement('canvas')
    canvas.width = canvas.height = SIDE
    const text = document.createElement('span')
    item.append(canvas, text)
    this.parts.means.append(item)
    return {item, canvas, text}
  }

  // ---- the run

  reset() {
    cancelAnimationFrame(this.frame)
    const net = this.data.layers.map(({scale, w, b}) => (
      {w: Float64Array.from(bytes(w), v => v*scale), b: Float64Array.from(b)}))
    const x = Float64Array.from(this.inks, ink => ink*this.data.factor)
    const codes = networkForward(net, x).at(-1)
    this.d = codes.length/this.classes.length
    const mu = kMeans(codes, this.d, 10).mu
    this.model = makeModel(x, this.d, mu, {net, batch: 64, interval: 60, rate: .2})
    this.start = accuracy(this.classes, clustersOf(this.model), 10)
    this.axes = [0, 1].map(a => Float64Array.from({length: this.d}, (_, c) => c % 2 === a ? 1 : .1))
    for (let round = 0; round < 10; round++) turnAxes(this.axes, this.model.z, this.d)
    this.parts.run.disabled = false
    this.draw()
  }

  run() {
    this.parts.run.disabled = true
    if (still.matches) {
      while (this.model.t < STEPS) step(this.model)
      this.draw()
      return
    }
    const next = () => {
      const begun = performance.now()
      while (this.model.t < STEPS && performance.now() - begun < 24) step(this.model)
      this.draw()
      if (this.model.t < STEPS) this.frame = requestAnimationFrame(next)
    }
    this.frame = requestAnimationFrame(next)
  }

  // ---- drawing

  draw() {
    const m = this.model, clusters = clustersOf(m)
    this.middle = turnAxes(this.axes, m.z, this.d)
    const places = m.everyone.map(i => this.place(m.z, i))
    this.zoom = 92/Math.max(...places.map(([x, y]) => Math.max(Math.abs(x)/1.5, Math.abs(y))))
    const paths = this.dots.map(() => '')
    places.forEach(([x, y], i) => {
      paths[clusters[i]] += `M${(x*this.zoom).toFixed(1)} ${(-y*this.zoom).toFixed(1)}h.001`
    })
    this.dots.forEach((dots, j) => dots.setAttribute('d', paths[j]))
    const percent = share => `${(100*share).toFixed(1)} %`
    const now = accuracy(this.classes, clusters, 10)
    this.parts.status.setAttribute('aria-live', m.t % STEPS ? 'off' : 'polite')
    this.parts.status.textContent = `k-means on the codes: ${percent(this.start)} of the digits in the right cluster. `
      + (m.t ? `DEC after ${m.t} batches: ${percent(now)}.` : 'DEC has not begun.')
    this.drawMeans(clusters)
    this.drawMine()
  }

  place(z, i) { // of a code, on the two axes
    return this.axes.map(axis => axis.reduce(
      (sum, a, c) => sum + a*(z[i*this.d + c] - this.middle[c]), 0))
  }

  drawMeans(clusters) {
    this.names = this.means.map(({canvas, item, text}, j) => {
      const members = this.model.everyone.filter(i => clusters[i] === j)
      const n = members.length
      const mean = new Float64Array(SIDE*SIDE), counts = new Array(10).fill(0)
      for (const i of members) {
        for (let c = 0; c < mean.length; c++) mean[c] += this.inks[i*mean.length + c]
        counts[this.classes[i]]++
      }
      paint(canvas, mean.map(v => v/Math.max(n, 1)), 1)
      canvas.style.borderColor = `var(--c${j})`
      const most = Math.max(...counts), digit = counts.indexOf(most)
      text.textContent = n ? `${digit}: ${Math.round(100*most/n)} %` : 'empty'
      item.setAttribute('aria-label', n ? `cluster ${j + 1}: ${n} digits, mostly ${digit}` : `cluster ${j + 1}: empty`)
      return digit
    })
  }

  drawMine() {
    const {grid, joins, ring} = this.parts, m = this.model, drawn = this.mine.some(ink => ink > 0)
    paint(grid, this.mine, CELL)
    if (grid.matches(':focus-visible')) {
      const pen = grid.getContext('2d')
      pen.strokeStyle = '#5a4fcf'
      pen.lineWidth = 3
      pen.strokeRect(CELL*(this.cursor % SIDE) + 1, CELL*Math.floor(this.cursor/SIDE) + 1, CELL - 2, CELL - 2)
    }
    ring.setAttribute('visibility', drawn ? 'visible' : 'hidden')
    for (const {item} of this.means) item.classList.remove('joined')
    joins.textContent = 'Draw a digit here, as large as the grid, and see which cluster it joins.'
    if (!drawn) return
    const code = networkForward(m.net, Float64Array.from(this.mine, v => v*this.data.factor)).at(-1)
    const {q} = softAssign(code, m.mu, this.d, m.alpha, false), own = largest(q, 0, 10)
    const [x, y] = this.place(code, 0)
    ring.setAttribute('cx', x*this.zoom)
    ring.setAttribute('cy', -y*this.zoom)
    this.means[own].item.classList.add('joined')
    joins.textContent = `It joins the framed cluster, mostly ${this.names[own]}, with q = ${q[own].toFixed(2)}.`
  }

  // ---- mouse, touch and keyboard

  listen() {
    const {run, reset, grid, clear} = this.parts
    run.addEventListener('click', () => this.run())
    reset.addEventListener('click', () => this.reset())
    clear.addEventListener('click', () => { this.mine.fill(0); this.drawMine() })
    grid.addEventListener('pointerdown', e => {
      grid.setPointerCapture(e.pointerId)
      this.last = null
      this.stroke(e)
    })
    grid.addEventListener('pointermove', e => { if (e.buttons) this.stroke(e) })
    grid.addEventListener('keydown', e => this.key(e))
    for (const event of ['focus', 'blur']) grid.addEventListener(event, () => this.drawMine())
  }

  stroke(e) { // from where the pointer was to where it is
    const box = this.parts.grid.getBoundingClientRect()
    const now = [SIDE*(e.clientX - box.left)/box.width, SIDE*(e.clientY - box.top)/box.height]
    const last = this.last ?? now
    for (let s = 0; s <= 1; s += .1) {
      this.brush(last[0] + s*(now[0] - last[0]), last[1] + s*(now[1] - last[1]))
    }
    this.last = now
    this.drawMine()
  }

  brush(x, y) {
    for (let i = 0; i < this.mine.length; i++) { // soft at its edge, as the digits are
      const away = Math.hypot(i % SIDE + .5 - x, Math.floor(i/SIDE) + .5 - y)
      this.mine[i] = Math.max(this.mine[i], Math.min(INK, Math.round(INK*(1.35 - away))))
    }
  }

  key(e) {
    const by = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -SIDE, ArrowDown: SIDE}[e.key]
    if (by) this.cursor = (this.cursor + by + SIDE*SIDE) % (SIDE*SIDE)
    else if (e.key === ' ') this.mine[this.cursor] = this.mine[this.cursor] ? 0 : INK
    else return
    e.preventDefault()
    e.stopPropagation()
    this.drawMine()
  }
}

for (const box of document.querySelectorAll('.dec-digits:not([data-on])')) {
  box.dataset.on = ''
  new Digits(box)
}

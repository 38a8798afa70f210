// The arithmetic of DEC, free of the page: any JavaScript engine can run it, and the tests do.
// A matrix is a Float64Array, row after row. Points have d numbers; there are n points, k clusters.

const TINY = 2.2250738585072014e-308 // the smallest normal float64

function randomNumbers(seed) { // -> a function that draws from [0, 1), the same for the same seed
  return () => {
    seed = (seed + 0x6D2B79F5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0)/4294967296
  }
}

function shuffled(n, random) {
  const order = Array.from({length: n}, (_, i) => i)
  for (let i = n - 1; i > 0; i--) {
    const j = Math.floor(random()*(i + 1))
    const kept = order[i]
    order[i] = order[j]
    order[j] = kept
  }
  return order
}

function squaredDistance(a, i, b, j, d) { // between row i of a and row j of b
  let sum = 0
  for (let c = 0; c < d; c++) sum += (a[i*d + c] - b[j*d + c])**2
  return sum
}

// ---- q, page 03

function logKernel(d2, alpha) {
  return alpha === Infinity ? -d2/2 : -(alpha + 1)/2*Math.log1p(d2/alpha)
}

function kernelSlope(d2, alpha) { // derivative of logKernel by d2
  return alpha === Infinity ? -1/2 : -(alpha + 1)/2/(alpha + d2)
}

function softAssign(z, mu, d, alpha, wrongExponent) { // -> q and slope, both (n, k)
  const k = mu.length/d, n = z.length/d
  const q = new Float64Array(n*k), slope = new Float64Array(n*k)
  const times = wrongExponent ? 2 : 1 // without its parentheses, the exponent doubles log-odds
  for (let i = 0; i < n; i++) {
    let top = -Infinity, sum = 0
    for (let j = 0; j < k; j++) {
      const d2 = squaredDistance(z, i, mu, j, d)
      q[i*k + j] = times*logKernel(d2, alpha)
      slope[i*k + j] = times*kernelSlope(d2, alpha)
      top = Math.max(top, q[i*k + j])
    }
    for (let j = 0; j < k; j++) sum += q[i*k + j] = Math.exp(q[i*k + j] - top)
    for (let j = 0; j < k; j++) q[i*k + j] /= sum
  }
  return {q, slope}
}

function largest(row, i, k) { // the column of the largest number in row i
  let best = 0
  for (let j = 1; j < k; j++) if (row[i*k + j] > row[i*k + best]) best = j
  return best
}

// ---- p, page 04

function softSizes(q, rows, k) { // f of these rows
  const f = new Float64Array(k)
  for (const i of rows) for (let j = 0; j < k; j++) f[j] += q[i*k + j]
  return f
}

function oneHotTarget(q, k) { // certain from one half on, or left out
  const p = new Float64Array(q.length)
  for (let i = 0; i < q.length/k; i++) {
    const own = largest(q, i, k)
    if (q[i*k + own] >= .5) p[i*k + own] = 1
  }
  return p
}

function sharpened(q, f, k) { // q² / f, normalised
  const p = new Float64Array(q.length)
  for (let i = 0; i < q.length/k; i++) {
    let sum = 0
    for (let j = 0; j < k; j++) {
      const w = q[i*k + j]*(q[i*k + j]/Math.max(f[j], TINY))
      p[i*k + j] = w
      sum += w
    }
    for (let j = 0; j < k; j++) p[i*k + j] /= sum
  }
  return p
}

function neighbourSets(x, d, most) { // of each point: itself, its nearest, and whom it is nearest to
  const n = x.length/d, sets = Array.from({length: n}, (_, i) => new Set([i]))
  for (let i = 0; i < n; i++) {
    const away = Float64Array.from({length: n}, (_, j) => squaredDistance(x, i, x, j, d))
    const order = Array.from(away.keys()).sort((a, b) => away[a] - away[b])
    for (const j of order.filter(j => j !== i).slice(0, most)) {
      sets[i].add(j)
      sets[j].add(i)
    }
  }
  return sets
}

function neighbourWalk(sets) { // an edge weighs as much as its ends share neighbours, page 26
  return sets.map(mine => {
    const edges = [...mine].map(other => {
      const shared = [...mine].filter(j => sets[other].has(j)).length
      return {other, weight: shared/(mine.size + sets[other].size - shared)}
    })
    const sum = edges.reduce((total, edge) => total + edge.weight, 0)
    return edges.map(edge => ({other: edge.other, weight: edge.weight/sum}))
  })
}

function averaged(q, k, walk) { // each row becomes a mean over its neighbours' rows
  const out = new Float64Array(q.length)
  walk.forEach((edges, i) => {
    for (const {other, weight} of edges) {
      for (let j = 0; j < k; j++) out[i*k + j] += weight*q[other*k + j]
    }
  })
  return out
}

function targetOf(m, rows) { // p of all points, with f of these rows
  if (m.target === 'one-hot') return oneHotTarget(m.q, m.k)
  let q = m.q
  if (m.target === 'neighbours') {
    m.walk ??= neighbourWalk(neighbourSets(m.x, m.d, m.nearest))
    for (let t = 0; t < m.walkSteps; t++) q = averaged(q, m.k, m.walk)
  }
  const f = m.target === 'no f' ? new Float64Array(m.k).fill(1) : softSizes(q, rows, m.k)
  return sharpened(q, f, m.k)
}

// ---- the loss and its gradient, page 05

function klLoss(p, q, rows, k) { // mean over these rows
  let sum = 0
  for (const i of rows) {
    for (let c = i*k; c < (i + 1)*k; c++) {
      if (p[c] > 0) sum += p[c]*(Math.log(p[c]) - Math.log(Math.max(q[c], TINY)))
    }
  }
  return sum/rows.length
}

function byLogQ(m, rows) { // derivative of the loss of each row by log q, p being a constant
  const out = new Float64Array(m.q.length)
  for (const i of rows) for (let c = i*m.k; c < (i + 1)*m.k; c++) out[c] = -m.p[c]
  return out
}

function byLogQThroughP(m, rows) { // the same if the gradient goes through the target, too: wrong
  const {p, q, k} = m, out = new Float64Array(q.length)
  const f = softSizes(q, rows, k), byLogF = new Float64Array(k)
  for (const i of rows) {
    const log = j => Math.log(Math.max(p[i*k + j], TINY)) - Math.log(Math.max(q[i*k + j], TINY))
    let mean = 0
    for (let j = 0; j < k; j++) mean += p[i*k + j]*log(j)
    for (let j = 0; j < k; j++) {
      const byLogW = p[i*k + j]*(log(j) - mean)
      out[i*k + j] = 2*byLogW - p[i*k + j]
      byLogF[j] -= byLogW
    }
  }
  for (const i of rows) for (let j = 0; j < k; j++) out[i*k + j] += byLogF[j]*q[i*k + j]/f[j]
  return out
}

function gradients(m, rows) { // of the loss summed over rows: by z, (n, d), and by mu, (k, d)
  const {z, mu, q, slope, d, k} = m
  const dz = new Float64Array(z.length), dmu = new Float64Array(mu.length)
  const u = m.target === 'through p' ? byLogQThroughP(m, rows) : byLogQ(m, rows)
  for (const i of rows) {
    let sum = 0
    for (let j = 0; j < k; j++) sum += u[i*k + j]
    for (let j = 0; j < k; j++) {
      const pull = 2*(u[i*k + j] - q[i*k + j]*sum)*slope[i*k + j]
      for (let c = 0; c < d; c++) {
        const term = pull*(z[i*d + c] - mu[j*d + c])
        dz[i*d + c] += term
        dmu[j*d + c] -= term
      }
    }
  }
  return {dz, dmu}
}

// ---- a network of linear layers with ReLUs between: {w: (out, in), b: (out)} each

function layerForward(layer, h, relu) {
  const {w, b} = layer, outs = b.length, ins = w.length/outs, n = h.length/ins
  const out = new Float64Array(n*outs)
  for (let i = 0; i < n; i++) {
    const inks = h.subarray(i*ins, i*ins + ins)
    for (let o = 0; o < outs; o++) {
      let sum = b[o]
      for (let c = 0; c < ins; c++) sum += w[o*ins + c]*inks[c]
      out[i*outs + o] = relu && sum < 0 ? 0 : sum
    }
  }
  return out
}

function networkForward(net, x) { // -> the points, what each layer makes of them, and last the codes
  const seen = [x]
  net.forEach((layer, l) => seen.push(layerForward(layer, seen[l], l < net.length - 1)))
  return seen
}

function networkStep(net, seen, dz, rows, rate) { // one step of gradient descent
  let back = dz
  for (let l = net.length - 1; l >= 0; l--) {
    const {w, b} = net[l], outs = b.length, ins = w.length/outs, h = seen[l]
    const dw = new Float64Array(w.length), db = new Float64Array(outs)
    const below = l > 0 ? new Float64Array(h.length) : null // nobody asks for the data's own
    for (const i of rows) {
      for (let o = 0; o < outs; o++) {
        const g = back[i*outs + o]
        if (g === 0) continue
        db[o] += g
        for (let c = 0; c < ins; c++) {
          dw[o*ins + c] += g*h[i*ins + c]
          if (l > 0 && h[i*ins + c] > 0) below[i*ins + c] += g*w[o*ins + c]
        }
      }
    }
    for (let c = 0; c < w.length; c++) w[c] -= rate*dw[c]
    for (let o = 0; o < outs; o++) b[o] -= rate*db[o]
    back = below
  }
}

function stillNetwork(random) { // 2-16-16-2, which leaves every point where it is
  const half = 8, units = Array.from({length: 2*half}, (_, u) => {
    const angle = Math.PI*(u % half)/half, sign = u < half ? 1 : -1
    return {sign, at: [Math.cos(angle), Math.sin(angle)]}
  })
  const shifts = () => {
    const drawn = Array.from({length: half}, () => 4*random() - 2)
    return [...drawn, ...drawn.map(s => -s)]
  }
  // relu(a·x + s) - relu(-a·x - s) is a·x + s, and the sum of a (a·x) over the half circle is 4 x
  const [first, second] = [shifts(), shifts()]
  const restore = (unit, at) => unit.sign*(unit.at[0]*at[0] + unit.at[1]*at[1])/4
  const undo = (shift, at) => -units.reduce(
    (sum, unit, u) => sum + (unit.sign > 0 ? shift[u]*restore(unit, at) : 0), 0)
  const directions = units.map(unit => unit.at.map(c => unit.sign*c)), axes = [[1, 0], [0, 1]]
  return [
    {w: Float64Array.from(directions.flat()), b: Float64Array.from(first)},
    {w: Float64Array.from(directions.flatMap(at => units.map(unit => restore(unit, at)))),
     b: Float64Array.from(directions, (at, u) => undo(first, at) + second[u])},
    {w: Float64Array.from(axes.flatMap(at => units.map(unit => restore(unit, at)))),
     b: Float64Array.from(axes, at => undo(second, at))}]
}

// ---- the loop, page 05

const SETTINGS = {alpha: 1, wrongExponent: false, target: 'dec', batch: 0, fOfBatch: false,
                  interval: 20, rate: .1, walkSteps: 10, nearest: 10, net: null, seed: 0}

function makeModel(x, d, mu, settings) { // d: numbers of a code; without a network, of a point
  const m = {...SETTINGS, ...settings, x, mu, t: 0}
  m.d = d
  m.k = mu.length/d
  m.n = m.net ? x.length/(m.net[0].w.length/m.net[0].b.length) : x.length/d
  m.random = randomNumbers(m.seed)
  m.order = []
  m.everyone = Array.from({length: m.n}, (_, i) => i)
  m.z = m.net ? null : Float64Array.from(x)
  look(m)
  m.p = targetOf(m, m.everyone)
  return m
}

function look(m) { // where the points are now, and how much each belongs to each cluster
  if (m.net) {
    m.seen = networkForward(m.net, m.x)
    m.z = m.seen.at(-1)
  }
  Object.assign(m, softAssign(m.z, m.mu, m.d, m.alpha, m.wrongExponent))
}

function nextRows(m) { // all points, or a batch of the shuffled ones
  if (!m.batch) return m.everyone
  if (m.order.length < m.batch) m.order = shuffled(m.n, m.random)
  return m.order.splice(0, m.batch)
}

function renewTarget(m, rows) { // at its time, or at every step if a mistake makes it so
  if (m.target === 'through p' || m.fOfBatch && m.t > 0 && m.interval < Infinity) {
    m.p = targetOf(m, rows)
  } else if (m.t === 0 || m.t % m.interval === 0) m.p = targetOf(m, m.everyone)
}

function step(m) {
  const rows = nextRows(m)
  renewTarget(m, rows)
  const {dz, dmu} = gradients(m, rows)
  for (let c = 0; c < m.mu.length; c++) m.mu[c] -= m.rate*dmu[c]/rows.length
  if (m.net) networkStep(m.net, m.seen, dz, rows, m.rate/rows.length)
  else for (let c = 0; c < m.z.length; c++) m.z[c] -= m.rate*dz[c] // its own gradient, not a share
  m.t += 1
  look(m)
  return rows
}

function clustersOf(m) { return m.everyone.map(i => largest(m.q, i, m.k)) }

// ---- the start: k-means, the tightest of several attempts

function kMeansOnce(z, d, k, random) {
  const n = z.length/d, mu = new Float64Array(k*d), own = new Int32Array(n)
  const near = new Float64Array(n).fill(Infinity)
  const place = (j, i) => mu.set(z.subarray(i*d, (i + 1)*d), j*d)
  place(0, Math.floor(random()*n))
  for (let j = 1; j < k; j++) { // the next centre: a point drawn by its squared distance
    for (let i = 0; i < n; i++) near[i] = Math.min(near[i], squaredDistance(z, i, mu, j - 1, d))
    let left = random()*near.reduce((a, b) => a + b, 0), i = 0
    while (i < n - 1 && (left -= near[i]) > 0) i++
    place(j, i)
  }
  let inertia = Infinity
  for (let round = 0; round < 100; round++) {
    const sums = new Float64Array(k*d), counts = new Float64Array(k)
    let now = 0
    for (let i = 0; i < n; i++) {
      const away = Array.from({length: k}, (_, j) => squaredDistance(z, i, mu, j, d))
      own[i] = away.indexOf(Math.min(...away))
      now += away[own[i]]
      counts[own[i]]++
      for (let c = 0; c < d; c++) sums[own[i]*d + c] += z[i*d + c]
    }
    for (let c = 0; c < k*d; c++) if (counts[Math.floor(c/d)]) mu[c] = sums[c]/counts[Math.floor(c/d)]
    if (now >= inertia) break
    inertia = now
  }
  return {mu, inertia, own}
}

function kMeans(z, d, k, attempts = 20, seed = 0) {
  const random = randomNumbers(seed)
  const runs = Array.from({length: attempts}, () => kMeansOnce(z, d, k, random))
  return runs.reduce((best, run) => run.inertia < best.inertia ? run : best)
}

// ---- the score, page 07

function accuracy(classes, clusters, k) { // under the best one-to-one naming of clusters
  const count = Array.from({length: k}, () => new Int32Array(k))
  classes.forEach((y, i) => count[clusters[i]][y]++)
  let best = new Map([[0, 0]]) // names that are taken, as bits -> points that are right
  for (const row of count) {
    const next = new Map()
    for (const [taken, right] of best) {
      for (let y = 0; y < k; y++) {
        const with_y = taken | (1 << y)
        if (with_y !== taken) next.set(with_y, Math.max(next.get(with_y) ?? 0, right + row[y]))
      }
    }
    best = next
  }
  return best.get((1 << k) - 1)/classes.length
}

// A page that was opened from the disk may not start workers, so that of the search runs in a hidden frame.
if (location.protocol === "file:") {
  // The theme's script looks for this name to know where it runs.
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.queue = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html><title>search</title>"
      this.frame.addEventListener("load", () => this.start(address), { once: true })
      document.body.append(this.frame)
    }

    start(address) {
      const inside = this.frame.contentWindow
      const own = new URL(address, document.baseURI)
      const load = (url) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script")
          script.src = new URL(url, own)
          script.onload = done
          script.onerror = failed
          inside.document.body.append(script)
        })
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      // One after another, as a worker would.
      inside.importScripts = (...urls) =>
        urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve())
      load(own).then(() => {
        this.inside = inside
        for (const data of this.queue.splice(0)) this.postMessage(data)
      })
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      else this.queue.push(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}

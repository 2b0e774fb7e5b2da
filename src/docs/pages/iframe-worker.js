// Lets the search run if the site is opened from a disk: browsers start no worker from there. The
// worker's scripts then run in a frame that is not shown, and messages go to and fro as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", {data});
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = (source) => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        script.src = new URL(source, document.baseURI);
        script.onload = done;
        script.onerror = failed;
        inner.document.head.append(script);
      });
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.ready = load(url);
    }
    postMessage(data) {
      const {contentWindow} = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new contentWindow.MessageEvent("message", {data})));
    }
    terminate() {
      this.frame.remove();
    }
  };
}

// A browser starts no worker for a page that was opened as a file. There, search runs in a hidden frame of the page.
// This stands in the place of a script that the generator would load from a server.
const copied = (data) => ({ data: structuredClone(data) }); // what is sent belongs to the sender
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.documentElement.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => setTimeout(() => this.onmessage?.(copied(data)));
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((done) => (script.onload = done));
      script.src = new URL(address, location);
      this.inside.document.head.append(script);
    }

    postMessage(data) {
      const message = copied(data);
      this.loaded.then(() => this.inside.onmessage?.(message));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

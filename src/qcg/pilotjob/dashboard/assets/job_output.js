// Output of a job that follows what the job writes.
import { run } from "./data.js";
import { h, outputText } from "./dom.js";
import { bytes } from "./format.js";

const TAIL = 65536;
const MOST_SHOWN = 1024 * 1024;
const OFTEN = 1000;

export class JobOutput {
  constructor(name) {
    this.name = name;
    this.stream = null;
    this.text = h("pre.output", { tabindex: 0, "aria-label": "Output", hidden: true });
    this.tabs = h("div.toolbar", { role: "group", "aria-label": "Streams" });
    this.note = h("p.muted.small");
    this.follow = h("button.button", { type: "button", "aria-pressed": "true", onclick: () => this.#setFollowing(this.follow.getAttribute("aria-pressed") !== "true") }, "follow");
    this.text.addEventListener("scroll", () => {
      const atEnd = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 30;
      if (!atEnd && this.following && !this.moving) this.#setFollowing(false);
    });
    this.element = h("section.panel", { "aria-label": "Output" }, h("div.panel-head", {}, h("h2", {}, "Output"), h("div.toolbar", {}, this.tabs, this.follow)), this.text, this.note);
    this.following = true;
    this.closed = false;
  }

  // The streams of a job, and whether it may still write.
  set(streams, running, failed) {
    const wasRunning = this.running;
    this.running = running;
    this.#showFollow();
    const names = Object.keys(streams);
    if (names.join() !== this.names) {
      this.names = names.join();
      this.tabs.replaceChildren(
        ...names.map((name) => h("button.button", { type: "button", "data-stream": name, "aria-pressed": "false", title: streams[name], onclick: () => this.open(name) }, name)),
      );
      if (!names.includes(this.stream)) names.length ? this.#openFirst(names, failed) : this.#showNothing("This job has no output files yet.");
    }
    if (wasRunning && !running) this.#read();
  }

  // Of a failed job the errors, if there are any.
  async #openFirst(names, failed) {
    this.stream = "";
    let first = names[0];
    if (failed && names.includes("stderr")) {
      const errors = await run.output(this.name, "stderr", -1).catch(() => null);
      if (errors?.size) first = "stderr";
    }
    if (!this.closed && !this.stream) this.open(first);
  }

  open(stream) {
    this.stream = stream;
    this.next = null;
    this.shown = 0;
    this.text.replaceChildren();
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", String(tab.dataset.stream === stream));
    this.#read();
  }

  #showNothing(sentence) {
    this.text.hidden = true;
    this.#showFollow();
    this.note.textContent = sentence;
  }

  // There is something to follow while the job writes, once it has written.
  #showFollow() {
    this.follow.hidden = !this.running || this.text.hidden;
  }

  #setFollowing(following) {
    this.following = following;
    this.follow.setAttribute("aria-pressed", String(following));
    if (following) this.#toEnd();
  }

  #toEnd() {
    this.moving = true;
    this.text.scrollTop = this.text.scrollHeight;
    requestAnimationFrame(() => (this.moving = false));
  }

  async #read() {
    clearTimeout(this.timer);
    const stream = this.stream;
    if (this.closed || !stream) return;
    try {
      const part = await run.output(this.name, stream, this.next ?? -TAIL);
      if (this.closed || stream !== this.stream) return;
      this.#append(part);
      if (part.next < part.size && part.text) return this.#read();
    } catch (error) {
      if (this.next === null) this.#showNothing(error.status === 404 ? "Nothing was written to this stream yet." : error.message);
    }
    if (this.running) this.timer = setTimeout(() => this.#read(), OFTEN);
  }

  #append(part) {
    if (this.next === null && part.next - byteLength(part.text) > 1) this.skipped = true;
    if (this.next !== null && part.size < this.next) {
      this.text.replaceChildren(); // the file was written anew
      this.shown = 0;
    }
    this.next = part.next;
    if (part.text) {
      this.text.append(outputText(part.text));
      this.shown += part.text.length;
      while (this.shown > MOST_SHOWN && this.text.childNodes.length > 1) {
        this.shown -= this.text.firstChild.length;
        this.text.firstChild.remove();
        this.skipped = true;
      }
    }
    this.text.hidden = !this.shown;
    this.#showFollow();
    if (part.text && this.following) this.#toEnd();
    this.note.replaceChildren(h("span", {}, this.shown ? `${bytes(part.size)} in `: "empty: ", h("code", {}, part.path), this.skipped ? "; the beginning is left out" : ""));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }
}

function byteLength(text) {
  return new TextEncoder().encode(text).length;
}

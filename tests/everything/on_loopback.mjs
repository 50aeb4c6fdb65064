// Preloaded into the server: it listens on a port of this machine only, ON_PORT or a free one, and writes which to
// the descriptor PORT_TO. By itself it would take a fixed port of all interfaces.
import { writeSync } from "node:fs";
import { Server } from "node:net";

const listen = Server.prototype.listen;

Server.prototype.listen = function (port, ...others) {
  this.once("listening", () => writeSync(Number(process.env.PORT_TO), `${this.address().port}\n`));
  return listen.call(this, Number(process.env.ON_PORT), "127.0.0.1", ...others);
};

// Preloaded into the server over stdio: it writes the method of each message it gets into the file ASKED.
import { appendFileSync } from "node:fs";

const parse = JSON.parse;

JSON.parse = (text, ...others) => {
  const message = parse(text, ...others);
  if (message?.jsonrpc && message.method) appendFileSync(process.env.ASKED, `${message.method}\n`);
  return message;
};

// The client of the TypeScript SDK on Node, which plays like process.py: `node typescript_client.mjs SDK COMMAND…`.

import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";

const [sdk, command, ...args] = process.argv.slice(2);
const { Client } = await import(`${sdk}/index.mjs`);
const { StdioClientTransport } = await import(`${sdk}/stdio.mjs`);

const client = new Client({ name: "peer", version: "1.0" });
await client.connect(new StdioClientTransport({ command, args }));
console.log(JSON.stringify(process.pid));
for await (const line of createInterface({ input: process.stdin })) {
  const [callers, times] = JSON.parse(line);
  const repeat = async () => {
    for (let made = 0; made < Math.floor(times / callers); made++) {
      await client.callTool({ name: "echo", arguments: { text: "hello" } });
    }
  };
  const began = performance.now();
  await Promise.all(Array.from({ length: callers }, repeat));
  console.log(JSON.stringify((performance.now() - began) / 1000));
}
await client.close();

// A client of the TypeScript SDK: for each server it calls a tool, lists the tools, makes a call that the test ends by a
// kill, and does the first two again. It prints one line of JSON for each server.
import { pathToFileURL } from "node:url";

const [sdk, command, names, ...args] = process.argv.slice(2);
const from = (path) => import(pathToFileURL(`${sdk}/dist/esm/${path}`).href);
const { Client } = await from("client/index.js");
const { StdioClientTransport } = await from("client/stdio.js");

const client = new Client({ name: "typescript", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));

const add = async (server) =>
  (await client.callTool({ name: `${server}_add`, arguments: { a: 1, b: 2 } })).content[0].text;
const list = async () => (await client.listTools()).tools.map((tool) => tool.name);

for (const server of names.split(",")) {
  const before = [await add(server), await list()];
  let error = null;
  try {
    await client.callTool({ name: `${server}_sleep`, arguments: { seconds: 600 } });
  } catch (raised) {
    error = { code: raised.code, data: raised.data };
  }
  console.log(JSON.stringify({ server, before, error, after: [await add(server), await list()] }));
}
await client.close();

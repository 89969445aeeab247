// Print messages and finish them, until Ctrl-C; one that says "fail" is requeued once.
//
//     cd examples/node && npm ci && node consume.js [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]

import { parseArgs } from 'node:util'
import nsq from 'nsqjs'

const address = { type: 'string', multiple: true, default: [] }
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { nsqd: address, nsqlookupd: address },
})
const [topic = 'test', channel = 'printer'] = positionals
const direct = values.nsqd.length + values.nsqlookupd.length ? values.nsqd : ['127.0.0.1:4150']

let finished = 0

function handle(message) {
  const body = message.body.toString()
  if (body === 'fail' && message.attempts === 1) throw new Error('this message fails once')
  console.log(body)
}

const reader = new nsq.Reader(topic, channel, {
  nsqdTCPAddresses: direct,
  lookupdHTTPAddresses: values.nsqlookupd,
  lookupdPollInterval: 5, // seconds; also how long a lost nsqd stays lost
  maxInFlight: 100,
  requeueDelay: 1000, // nsqjs: 90 s
})
reader.on('message', (message) => {
  try {
    handle(message)
  } catch (error) {
    console.error('requeued:', error.message)
    message.requeue()
    return
  }
  finished += 1
  message.finish()
})
reader.on('nsqd_connected', (host, port) => console.error(`connected to ${host}:${port}`))
reader.on('error', (error) => console.error(error.message))

function stop() {
  reader.close() // what is in flight goes to another consumer
  console.error('messages finished:', finished)
}
process.once('SIGINT', stop)
process.once('SIGTERM', stop)

reader.connect()

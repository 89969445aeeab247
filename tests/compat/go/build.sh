#!/bin/sh
# Builds the programs of NSQ 1.3.0 that the tests compare with: sh build.sh FOLDER
set -eu

output=$1
mkdir -p "$output"
output=$(cd "$output" && pwd)
cd "$(dirname "$0")"

# go.mod and go.sum are complete and committed, so a build leaves the work tree clean.
GOFLAGS="${GOFLAGS:-} -mod=readonly" go build -o "$output/" \
    github.com/nsqio/nsq/apps/nsqd \
    github.com/nsqio/nsq/apps/nsqlookupd \
    github.com/nsqio/nsq/apps/nsqadmin \
    github.com/nsqio/nsq/apps/nsq_stat \
    github.com/nsqio/nsq/apps/nsq_tail \
    github.com/nsqio/nsq/apps/nsq_to_file \
    github.com/nsqio/nsq/apps/nsq_to_http \
    github.com/nsqio/nsq/apps/nsq_to_nsq \
    github.com/nsqio/nsq/apps/to_nsq \
    github.com/nsqio/nsq/bench/bench_reader \
    github.com/nsqio/nsq/bench/bench_writer

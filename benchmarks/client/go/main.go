// A client in Go, on go-nsq, for the same loads as the drivers in Python beside it:
//
//	driver SCENARIO ADDRESS TOPIC COUNT SIZE
//
// It prints one line of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	inFlight    = 256
	outstanding = 100
	piped       = 10000
	batch       = 100
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func producer(address string) *nsq.Producer {
	p, err := nsq.NewProducer(address, nsq.NewConfig())
	check(err)
	p.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelError)
	check(p.Ping())
	return p
}

func publishOne(p *nsq.Producer, topic string, count int, body []byte) {
	for i := 0; i < count; i++ {
		check(p.Publish(topic, body))
	}
}

func publishMany(p *nsq.Producer, topic string, count int, body []byte, window int) {
	done := make(chan *nsq.ProducerTransaction, window)
	waiting := 0
	for i := 0; i < count; i++ {
		if waiting == window {
			check((<-done).Error)
			waiting--
		}
		check(p.PublishAsync(topic, body, done))
		waiting++
	}
	for ; waiting > 0; waiting-- {
		check((<-done).Error)
	}
}

func multiPublish(p *nsq.Producer, topic string, count int, body []byte) {
	bodies := make([][]byte, batch)
	for i := range bodies {
		bodies[i] = body
	}
	for i := 0; i < count/batch; i++ {
		check(p.MultiPublish(topic, bodies))
	}
}

// consume returns a consumer and a channel that tells when count messages were finished.
func consume(address, topic string, count int) (*nsq.Consumer, chan struct{}) {
	config := nsq.NewConfig()
	config.MaxInFlight = inFlight
	consumer, err := nsq.NewConsumer(topic, "channel", config)
	check(err)
	consumer.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelError)
	done := make(chan struct{})
	var seen int64
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
		if atomic.AddInt64(&seen, 1) == int64(count) {
			close(done)
		}
		return nil
	}), 4)
	check(consumer.ConnectToNSQD(address))
	return consumer, done
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	scenario, address, topic := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	size, err := strconv.Atoi(os.Args[5])
	check(err)
	body := make([]byte, size)
	var p *nsq.Producer
	if scenario != "consume" {
		p = producer(address)
	}
	cpu, start := cpuSeconds(), time.Now()
	switch scenario {
	case "pub_one":
		publishOne(p, topic, count, body)
	case "pub_100":
		publishMany(p, topic, count, body, outstanding)
	case "pub_piped":
		publishMany(p, topic, count, body, piped)
	case "mpub":
		multiPublish(p, topic, count, body)
	case "consume":
		_, done := consume(address, topic, count)
		<-done
	case "round_trip":
		_, done := consume(address, topic, count)
		publishMany(p, topic, count, body, outstanding)
		<-done
	default:
		log.Fatal("no scenario ", scenario)
	}
	line, err := json.Marshal(map[string]float64{
		"messages":    float64(count),
		"seconds":     time.Since(start).Seconds(),
		"cpu_seconds": cpuSeconds() - cpu,
	})
	check(err)
	fmt.Println(string(line))
}

// Print messages and finish them, until Ctrl-C; one that says "fail" is requeued once.
//
//	cd examples/go && go run . [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT]
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nsqio/go-nsq"
)

var finished atomic.Int64

// handle finishes the message by returning nil; an error requeues it.
func handle(message *nsq.Message) error {
	if string(message.Body) == "fail" && message.Attempts == 1 {
		return errors.New("this message fails once")
	}
	fmt.Println(string(message.Body))
	finished.Add(1)
	return nil
}

// addresses collects the values of a flag that may be repeated.
type addresses []string

func (a *addresses) String() string { return strings.Join(*a, ",") }

func (a *addresses) Set(value string) error {
	*a = append(*a, value)
	return nil
}

// readNames reads the flags, which may stand before, behind or between the names that it returns.
func readNames() (names []string) {
	for rest := os.Args[1:]; ; rest = flag.Args()[1:] {
		flag.CommandLine.Parse(rest) // an error ends the program
		if flag.NArg() == 0 {
			return names
		}
		names = append(names, flag.Arg(0))
	}
}

func main() {
	var nsqd, nsqlookupd addresses
	flag.Var(&nsqd, "nsqd", "TCP `HOST:PORT` of an nsqd; repeat it for more (default 127.0.0.1:4150)")
	flag.Var(&nsqlookupd, "nsqlookupd", "HTTP `HOST:PORT` of an nsqlookupd, which knows the nsqd")
	names := readNames()
	topic, channel := "test", "printer"
	if len(names) > 0 {
		topic = names[0]
	}
	if len(names) > 1 {
		channel = names[1]
	}
	if len(nsqd) == 0 && len(nsqlookupd) == 0 {
		nsqd = addresses{"127.0.0.1:4150"}
	}
	log.SetFlags(0)
	if err := consume(topic, channel, nsqd, nsqlookupd); err != nil {
		log.Fatal(err)
	}
	log.Println("messages finished:", finished.Load())
}

// consume returns after Ctrl-C or SIGTERM, when the handlers have ended.
func consume(topic, channel string, nsqd, nsqlookupd []string) error {
	config := nsq.NewConfig()
	config.MaxInFlight = 100
	config.DefaultRequeueDelay = time.Second // go-nsq: 90 s
	consumer, err := nsq.NewConsumer(topic, channel, config)
	if err != nil {
		return err
	}
	consumer.SetLogger(log.New(os.Stderr, "", 0), nsq.LogLevelInfo)
	consumer.AddHandler(nsq.HandlerFunc(handle))
	if err := consumer.ConnectToNSQDs(nsqd); err != nil {
		return err
	}
	if err := consumer.ConnectToNSQLookupds(nsqlookupd); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	consumer.Stop()
	<-consumer.StopChan
	return nil
}

// The same work as turnout's JetStream client with nats.go, and as its subject transforms with nats-server's own code.
//
// Each line on standard input is an order in JSON, and is answered by one line: the seconds that it took, the seconds of
// processor time of all threads, and the subjects that were made.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type order struct {
	Work        string
	URL         string
	Count       int
	Batch       int
	Size        int
	First       int
	Source      string
	Destination string
	Subjects    []string
}

type answer struct {
	Seconds  float64  `json:"seconds"`
	CPU      float64  `json:"cpu"`
	Subjects []string `json:"subjects,omitempty"`
}

func cpu() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func transform(o order) []string {
	made := make([]string, len(o.Subjects))
	mapping, err := server.NewSubjectTransform(o.Source, o.Destination)
	check(err)
	for i, subject := range o.Subjects {
		made[i], err = mapping.Match(subject)
		check(err)
	}
	return made
}

func push(connection *nats.Conn, o order, callback bool) {
	js, err := connection.JetStream()
	check(err)
	if !callback {
		subscription, err := js.SubscribeSync("bench.read", nats.AckNone())
		check(err)
		for i := 0; i < o.Count; i++ {
			_, err := subscription.NextMsg(time.Minute)
			check(err)
		}
		check(subscription.Unsubscribe())
		return
	}
	done, count := make(chan bool), 0
	subscription, err := js.Subscribe("bench.read", func(*nats.Msg) {
		if count++; count == o.Count {
			close(done)
		}
	}, nats.AckNone())
	check(err)
	<-done
	check(subscription.Unsubscribe())
}

func pull(connection *nats.Conn, o order, iterate, ack bool) {
	js, err := jetstream.New(connection)
	check(err)
	background := context.Background()
	consumer, err := js.CreateConsumer(background, "BENCH", jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, FilterSubject: "bench.read",
	})
	check(err)
	take := func(message jetstream.Msg) {
		if ack {
			check(message.Ack())
		}
	}
	if iterate {
		messages, err := consumer.Messages(jetstream.PullMaxMessages(2 * o.Batch))
		check(err)
		for i := 0; i < o.Count; i++ {
			message, err := messages.Next()
			check(err)
			take(message)
		}
		messages.Stop()
	} else {
		for count := 0; count < o.Count; {
			batch, err := consumer.Fetch(o.Batch)
			check(err)
			for message := range batch.Messages() {
				take(message)
				count++
			}
			check(batch.Error())
		}
	}
	check(connection.Flush())
	check(js.DeleteConsumer(background, "BENCH", consumer.CachedInfo().Name))
}

func publish(connection *nats.Conn, o order) {
	js, err := jetstream.New(connection)
	check(err)
	for i := 0; i < o.Count; i++ {
		payload := make([]byte, o.Size)
		copy(payload, fmt.Sprintf("%012d", o.First+i))
		_, err := js.PublishAsync("bench.write", payload)
		check(err)
	}
	<-js.PublishAsyncComplete()
}

// Read every message of the stream of flights, and publish every second one.
func relay(connection *nats.Conn, o order) {
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(4*o.Batch))
	check(err)
	background := context.Background()
	consumer, err := js.CreateConsumer(background, "FLIGHTS", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	check(err)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2 * o.Batch))
	check(err)
	for i := 0; i < o.Count; i++ {
		message, err := messages.Next()
		check(err)
		if i%2 == 0 {
			header := message.Headers()
			if header == nil {
				header = nats.Header{}
			}
			header.Set("Nats-Msg-Id", fmt.Sprintf("FLIGHTS:%d", i))
			out := &nats.Msg{Subject: "deliver.relay", Header: header, Data: message.Data()}
			_, err := js.PublishMsgAsync(out, jetstream.WithStallWait(time.Minute))
			check(err)
		}
	}
	messages.Stop()
	<-js.PublishAsyncComplete()
	check(js.DeleteConsumer(background, "FLIGHTS", consumer.CachedInfo().Name))
}

func run(o order) answer {
	if o.Work == "subjects" {
		begun, used := time.Now(), cpu()
		made := transform(o)
		return answer{time.Since(begun).Seconds(), cpu() - used, made}
	}
	connection, err := nats.Connect(o.URL)
	check(err)
	defer connection.Close()
	begun, used := time.Now(), cpu()
	switch o.Work {
	case "push callback", "push iterator":
		push(connection, o, o.Work == "push callback")
	case "publish_async, acked":
		publish(connection, o)
	case "relay":
		relay(connection, o)
	case "pull fetch", "pull fetch, acked", "pull iterator, acked":
		pull(connection, o, o.Work == "pull iterator, acked", o.Work != "pull fetch")
	default:
		check(fmt.Errorf("unknown work %q", o.Work))
	}
	return answer{time.Since(begun).Seconds(), cpu() - used, nil}
}

func main() {
	orders, answers := json.NewDecoder(bufio.NewReaderSize(os.Stdin, 1<<16)), json.NewEncoder(os.Stdout)
	for {
		var o order
		if orders.Decode(&o) != nil {
			return
		}
		check(answers.Encode(run(o)))
	}
}

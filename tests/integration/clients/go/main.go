// A client of turnout's gRPC services from generated code: one scenario in, what was seen as one line of JSON out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"clients/feeds"
	"clients/matching"
	"clients/subscriptions"
)

type object = map[string]any

var ctx, _ = context.WithTimeout(context.Background(), 100*time.Second)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// outcome is the name of a status, with its message where it is none of OK.
func outcome(err error) string {
	if err == nil {
		return "OK"
	}
	return codeName(status.Code(err)) + ": " + status.Convert(err).Message()
}

var names = map[codes.Code]string{
	codes.OK: "OK", codes.NotFound: "NOT_FOUND", codes.Aborted: "ABORTED", codes.Unavailable: "UNAVAILABLE",
	codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.InvalidArgument: "INVALID_ARGUMENT",
}

func codeName(code codes.Code) string {
	if name, ok := names[code]; ok {
		return name
	}
	return code.String()
}

type clients struct {
	service  subscriptions.ServiceClient
	matching matching.MatchingClient
	feeds    feeds.FeedsClient
}

func main() {
	time.AfterFunc(110*time.Second, func() { os.Exit(3) })
	connection := must(grpc.NewClient(os.Args[2], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer connection.Close()
	c := clients{
		subscriptions.NewServiceClient(connection), matching.NewMatchingClient(connection),
		feeds.NewFeedsClient(connection),
	}
	scenarios := map[string]func() object{
		"lifecycle": c.lifecycle, "concurrent": c.concurrent, "pages": c.pages, "watch": c.watch, "burst": c.burst,
		"large": c.large, "feed": c.feed, "stop": c.stop,
	}
	json.NewEncoder(os.Stdout).Encode(scenarios[os.Args[1]]())
}

func (c clients) create(pattern string, metadata map[string]string) string {
	condition := &subscriptions.ConditionInput{Condition: &subscriptions.ConditionInput_KiwiTreeCondition{
		KiwiTreeCondition: &subscriptions.KiwiTreeConditionInput{Key: "subject", Pattern: pattern},
	}}
	input := &subscriptions.SubscriptionDataInput{
		Metadata: metadata,
		Route:    &subscriptions.RouteInput{Destinations: []string{"out"}, Condition: condition},
	}
	return must(c.service.Create(ctx, input)).Id
}

func (c clients) match(subject string) (*matching.MatchResponse, error) {
	return c.matching.Match(ctx, &matching.MatchRequest{Metadata: map[string]string{"subject": subject}})
}

func (c clients) lifecycle() object {
	id := c.create("orders", map[string]string{"name": "first"})
	data := must(c.service.Read(ctx, &subscriptions.ReadRequest{Id: id}))
	first, stale := data.Revision, data.Revision+1_000
	data.Metadata["name"] = "second"
	_, conflict := c.service.Update(ctx, &subscriptions.UpdateRequest{Id: id, Data: data, ExpectedRevision: &stale})
	updated := must(c.service.Update(ctx, &subscriptions.UpdateRequest{Id: id, Data: data, ExpectedRevision: &first}))
	again := must(c.service.Read(ctx, &subscriptions.ReadRequest{Id: id}))
	_, late := c.service.Delete(ctx, &subscriptions.DeleteRequest{Id: id, ExpectedRevision: &first})
	_, deleted := c.service.Delete(ctx, &subscriptions.DeleteRequest{Id: id, ExpectedRevision: &updated.Revision})
	_, gone := c.service.Read(ctx, &subscriptions.ReadRequest{Id: id})
	return object{
		"conflict": outcome(conflict), "name": again.Metadata["name"], "same": again.Revision == updated.Revision,
		"late": outcome(late), "deleted": outcome(deleted), "gone": outcome(gone),
	}
}

// concurrent matches eight times at once, right after each creation and each deletion.
func (c clients) concurrent() object {
	wrong, rounds := 0, 25
	var lock sync.Mutex
	check := func(id string, expected bool) {
		var calls sync.WaitGroup
		for range 8 {
			calls.Add(1)
			go func() {
				defer calls.Done()
				found := false
				for _, match := range must(c.match("round")).Matches {
					found = found || match.SubscriptionId == id
				}
				if found != expected {
					lock.Lock()
					wrong++
					lock.Unlock()
				}
			}()
		}
		calls.Wait()
	}
	for range rounds {
		id := c.create("round", nil)
		check(id, true)
		must(c.service.Delete(ctx, &subscriptions.DeleteRequest{Id: id}))
		check(id, false)
	}
	return object{"matches": rounds * 16, "wrong": wrong}
}

func (c clients) pages() object {
	created := []string{}
	for range 5 {
		created = append(created, c.create("page", map[string]string{"kind": "page"}))
	}
	byMetadata, byCondition, lengths := []string{}, []string{}, []int{}
	for cursor := ""; ; {
		request := &subscriptions.SearchByMetadataRequest{Cursor: cursor, Limit: 2, Metadata: map[string]string{"kind": "page"}}
		response := must(c.service.SearchByMetadata(ctx, request))
		lengths = append(lengths, len(response.Page))
		for _, found := range response.Page {
			byMetadata = append(byMetadata, found.Id)
		}
		if cursor = response.Cursor; cursor == "" {
			break
		}
	}
	for cursor := ""; ; {
		query := &subscriptions.KiwiConditionQuery{Key: "subject", Pattern: "page"}
		request := &subscriptions.SearchByConditionRequest{
			Cursor: cursor, Limit: 2,
			Condition: &subscriptions.SearchByConditionRequest_KiwiConditionQuery{KiwiConditionQuery: query},
		}
		response := must(c.service.SearchByCondition(ctx, request))
		for _, found := range response.Page {
			byCondition = append(byCondition, found.SubscriptionId)
		}
		if cursor = response.Cursor; cursor == "" {
			break
		}
	}
	return object{"created": created, "byMetadata": byMetadata, "byCondition": byCondition, "lengths": lengths}
}

func (c clients) watch() object {
	before := c.create("watched", nil)
	stream := must(c.matching.Watch(ctx, &matching.WatchRequest{}))
	created, deleted := map[string]bool{}, map[string]bool{}
	receive := func(set map[string]bool, id string) {
		for !set[id] {
			changes := must(stream.Recv())
			for _, one := range changes.Created {
				created[one.Id] = true
			}
			for _, one := range changes.DeletedIds {
				deleted[one] = true
			}
		}
	}
	receive(created, before)
	after := c.create("watched", nil)
	receive(created, after)
	must(c.service.Delete(ctx, &subscriptions.DeleteRequest{Id: after}))
	receive(deleted, after)
	return object{"created": created[before] && created[after], "deleted": deleted[after], "other": deleted[before]}
}

func (c clients) burst() object {
	c.create("burst", nil)
	calls := must(strconv.Atoi(os.Args[3]))
	var lock sync.Mutex
	var done sync.WaitGroup
	counts := map[string]int{}
	for range calls {
		done.Add(1)
		go func() {
			defer done.Done()
			_, err := c.match("burst")
			lock.Lock()
			counts[codeName(status.Code(err))]++
			lock.Unlock()
		}()
	}
	done.Wait()
	return object{"counts": counts}
}

func (c clients) large() object {
	_, err := c.match("large")
	return object{"outcome": outcome(err)}
}

// feed follows a feed that it leaves after two messages each time, behind the cursor of the last one.
func (c clients) feed() object {
	messages, cursor, connections := [][]string{}, "", 0
	for len(messages) < 15 {
		call, leave := context.WithCancel(ctx)
		connections++
		stream := must(c.feeds.Read(call))
		start := &feeds.Start{SubscriptionId: os.Args[3], After: cursor, Follow: true}
		if err := stream.Send(&feeds.ReadRequest{Command: &feeds.ReadRequest_Start{Start: start}}); err != nil {
			must(0, err)
		}
		page := must(stream.Recv()).Messages
		for _, message := range page[:min(2, 15-len(messages), len(page))] {
			cursor = message.Cursor
			messages = append(messages, []string{string(message.Value), message.Topic})
		}
		leave()
	}
	return object{"messages": messages, "connections": connections}
}

// stop calls until the server is away; a line after the first answer says that it may be stopped.
func (c clients) stop() object {
	must(c.match("stop"))
	fmt.Println("ready")
	counts := map[string]int{}
	var lock sync.Mutex
	var done sync.WaitGroup
	for range 50 {
		done.Add(1)
		go func() {
			defer done.Done()
			for {
				_, err := c.match("stop")
				lock.Lock()
				counts[outcome(err)]++
				lock.Unlock()
				if err != nil {
					return
				}
			}
		}()
	}
	done.Wait()
	bufio.NewReader(os.Stdin).ReadString('\n')
	_, away := c.match("stop")
	return object{"counts": counts, "away": codeName(status.Code(away))}
}

package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// Send a payment notification. The key makes it safe to run this again after a crash.
func Example() {
	c, err := client.New(client.Options{URL: serverURL, Key: key})
	if err != nil {
		log.Fatal(err)
	}
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Topic: "payment.succeeded", Ref: "order-1",
		Payload: json.RawMessage(`{"paid":10000}`), IdempotencyKey: "order-1/paid",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.State, cb.Ref)
	// Output: scheduled order-1
}

func ExampleNew() {
	c, err := client.New(client.Options{
		URL: serverURL, Key: key,
		Timeout: 10 * time.Second, Retries: 2, UserAgent: "checkout/1.4",
		HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}},
	})
	if err != nil {
		log.Fatal(err)
	}
	stats, err := c.Stats(ctx)
	fmt.Println(stats.States[client.Attempting] >= 0, err)
	// Output: true <nil>
}

func ExampleClient_CloseIdleConnections() {
	c, err := client.New(client.Options{URL: serverURL, Key: key})
	if err != nil {
		log.Fatal(err)
	}
	defer c.CloseIdleConnections()
	_, err = c.Stats(ctx)
	fmt.Println(err)
	// Output: <nil>
}

// Call sends a request that has no method.
func ExampleClient_Call() {
	var out struct {
		Data []client.Project `json:"data"`
	}
	answer, err := c.Call(ctx, "GET", "/v1/projects?limit=1", nil, &out)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Status, out.Data[0].ID)
	// Output: 200 default
}

// The attempts of the callback continue the trace of the request that causes it.
func ExampleWithHeader() {
	incoming := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	mux.HandleFunc("POST /traced", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(strings.Split(r.Header.Get("traceparent"), "-")[1])
	})

	ctx := client.WithHeader(ctx, "traceparent", incoming.Get("traceparent"))
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/traced", Payload: json.RawMessage(`{"paid":10000}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	await(cb.ID)
	// Output: 4bf92f3577b34da6a3ce929d0e0e4736
}

func ExampleError() {
	_, err := c.Send(ctx, client.CallbackRequest{URL: "shop.example", Payload: json.RawMessage(`{}`)})
	if e, ok := errors.AsType[*client.Error](err); ok {
		fmt.Println(e.Status, e.Code)
		for _, f := range e.Errors {
			fmt.Println(f.Field)
		}
	}
	// Output:
	// 422 invalid
	// url
}

func ExampleCode() {
	_, err := c.Callback(ctx, "cb_01JD0000000000000000000000")
	fmt.Println(errors.Is(err, client.CodeNotFound))
	// Output: true
}

// The server has committed the callback, and the connection breaks. The same request returns it.
func ExampleAmbiguous() {
	breaking := &http.Client{Transport: &lossy{lose: 1}}
	c, err := client.New(client.Options{URL: serverURL, Key: key, HTTPClient: breaking, Retries: -1})
	if err != nil {
		log.Fatal(err)
	}
	request := client.CallbackRequest{
		URL: "https://shop.example/notify", Payload: json.RawMessage(`{"paid":10000}`),
		IdempotencyKey: "order-2/paid",
	}
	cb, err := c.Send(ctx, request)
	if lost, ok := errors.AsType[*client.NoAnswerError](err); ok { // the server may have accepted it
		request.IdempotencyKey = lost.IdempotencyKey // store the request, so that you can send it again later
		cb, err = c.Send(ctx, request)
	}
	fmt.Println(cb.Replayed, err, client.Ambiguous(err))
	// Output: true <nil> false
}

func ExampleList_All() {
	scheduled("order-3")
	for cb, err := range c.Callbacks(client.Filter{Ref: "order-3"}).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cb.Ref, cb.State)
	}
	// Output: order-3 scheduled
}

// A page with its cursor is for programs that show pages themselves.
func ExampleList_Page() {
	for range 3 {
		scheduled("order-4")
	}
	list := c.Callbacks(client.Filter{Ref: "order-4"})
	first, err := list.Page(ctx, "", 2)
	if err != nil {
		log.Fatal(err)
	}
	second, err := list.Page(ctx, first.NextCursor, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(first.Data), len(second.Data), second.NextCursor == "")
	// Output: 2 1 true
}

func ExampleClient_Stats() {
	scheduled("order-5")
	stats, err := c.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	index, known := stats.Index.Get()
	fmt.Println(stats.States[client.Scheduled] > 0, known, index.Delayed > 0)
	// Output: true true true
}

func ExampleClient_OpenAPI() {
	document, err := c.OpenAPI(ctx)
	if err != nil {
		log.Fatal(err)
	}
	first, _, _ := strings.Cut(string(document), "\n")
	fmt.Println(first)
	// Output: openapi: 3.1.0
}

func ExampleClient_VerifyIndex() {
	drift, err := c.VerifyIndex(ctx, client.VerifyRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(drift.Clean)
	// Output: true
}

func ExampleClient_RebuildIndex() {
	scheduled("order-6")
	rebuild, err := c.RebuildIndex(ctx, client.RebuildRequest{DryRun: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rebuild.DryRun, rebuild.Open > 0)
	// Output: true true
}

func ExampleClient_Audit() {
	if _, err := c.PauseLane(ctx, "audited", client.PauseRequest{}); err != nil {
		log.Fatal(err)
	}
	for entry, err := range c.Audit().All(ctx) { // newest first
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(entry.Actor, entry.Action, entry.Object)
		break
	}
	// Output: admin key lane.pause audited
}

// The hash chain of the audit log is checked in parts.
func ExampleClient_VerifyAudit() {
	for from := ""; ; {
		check, err := c.VerifyAudit(ctx, from, "")
		if err != nil {
			log.Fatal(err)
		}
		if !check.Sound {
			log.Fatalf("entry %d is %s", check.Broken.Sequence, check.Broken.Fault)
		}
		from = check.Next
		if from == "" {
			break
		}
	}
	fmt.Println("sound")
	// Output: sound
}

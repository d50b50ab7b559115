package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// outbox returns the table of a source.
func outbox(source string) string { return "db1:3306/" + source + "/dispatcher_outbox" }

// heldSource returns the name of a source that a relay holds. It has a refused row.
func heldSource(name string) string {
	_, err := c.Relay(ctx, name, client.RelayBatch{
		Holder: "relay-1", Origin: outbox(name),
		Report: &client.RelayReport{LagMs: 40, RefusedRows: 1, Refusals: &[]client.RelayRefusal{{
			ID: "order-1001 paid", Seq: 7, Kind: "callback", Code: "invalid", Problem: "url: is required",
			RefusedAt: time.Now(),
		}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return name
}

// An application hands over its own row right after the transaction. The relay later finds that the row is
// accepted, and removes it.
func ExampleClient_Relay() {
	rows := []client.RelayRow{{
		ID:      "order-1001 paid",
		Request: json.RawMessage(`{"url":"https://shop.example/notify","payload":{"paid":"100.00"}}`),
	}}
	for range 2 {
		reply, err := c.Relay(ctx, "pay", client.RelayBatch{Rows: rows})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Results[0].Status)
	}
	// Output:
	// 202
	// 200
}

func ExampleClient_RelaySources() {
	heldSource("pay-00")
	sources, err := c.RelaySources(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range sources {
		if s.Name == "pay-00" {
			fmt.Println(s.Name, s.Holder, s.Origin)
		}
	}
	// Output: pay-00 relay-1 db1:3306/pay-00/dispatcher_outbox
}

func ExampleClient_RelaySource() {
	s, err := c.RelaySource(ctx, heldSource("pay-01"))
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range s.Refusals {
		fmt.Println(row.ID, row.Code, row.Problem)
	}
	// Output: order-1001 paid invalid url: is required
}

// After the cause is fixed, the relay hands the rows over again.
func ExampleClient_RetryRefused() {
	s, err := c.RetryRefused(ctx, heldSource("pay-02"), client.RelayRetry{
		Code: "invalid", Change: client.Change{Reason: "the URL is fixed"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Act.Action, s.Act.State)
	// Output: retry waiting
}

func ExampleClient_DropRefused() {
	s, err := c.DropRefused(ctx, heldSource("pay-03"), client.RelayDrop{All: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Act.Action, s.Act.State)
	// Output: drop waiting
}

// After the dispatcher's database was restored to a time, hand over what was removed since then.
func ExampleClient_ReplayKept() {
	s, err := c.ReplayKept(ctx, heldSource("pay-04"), client.RelayReplay{
		Since: time.Now().Add(-time.Hour), Rate: 1000,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Act.Action, s.Act.Rate)
	// Output: replay 1000
}

// A replay of too many rows is ended by hand.
func ExampleClient_CancelRelayAct() {
	name := heldSource("pay-06")
	_, err := c.ReplayKept(ctx, name, client.RelayReplay{Since: time.Now().Add(-1000 * time.Hour)})
	if err != nil {
		log.Fatal(err)
	}
	s, err := c.CancelRelayAct(ctx, name, "wrong time")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Act.Action, s.Act.State)
	// Output: replay canceled
}

func ExampleClient_ForgetRelay() {
	name := heldSource("pay-05")
	fmt.Println(errors.Is(c.ForgetRelay(ctx, name, "moved"), client.CodeRelayHeld))
	_, err := c.Relay(ctx, name, client.RelayBatch{Holder: "relay-1", Origin: outbox(name), Release: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.ForgetRelay(ctx, name, "moved"))
	// Output:
	// true
	// <nil>
}

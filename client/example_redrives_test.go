package client_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// newRedrive returns a redrive that takes hours, and that has found its callbacks.
func newRedrive(ref string) client.Redrive {
	for range 3 {
		scheduled(ref)
	}
	r, err := c.CreateRedrive(ctx, client.RedriveRequest{
		Action: client.RedriveCancel, Filter: client.Filter{Ref: ref}, Rate: "1/h",
	})
	for ; err == nil && r.State == client.RedriveGathering; time.Sleep(5 * time.Millisecond) {
		r, err = c.Redrive(ctx, r.ID)
	}
	if err != nil {
		log.Fatal(err)
	}
	return r
}

// A dry run counts. Then every dead callback of a shop is attempted again, at most ten a second.
func ExampleClient_CreateRedrive() {
	failed("order-60")
	request := client.RedriveRequest{
		Action: client.RedriveRetry, Filter: client.Filter{Ref: "order-60"}, Rate: "10/s", DryRun: true,
		Change: client.Change{Reason: "the shop works again"},
	}
	counted, err := c.CreateRedrive(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	request.DryRun = false
	started, err := c.CreateRedrive(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counted.Matched, started.Action, started.Rate)
	// Output: 1 retry 10/s
}

func ExampleClient_Redrives() {
	id := newRedrive("order-61").ID
	for r, err := range c.Redrives().All(ctx) { // newest first
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.ID == id, r.Action)
		break
	}
	// Output: true cancel
}

func ExampleClient_Redrive() {
	id := newRedrive("order-62").ID
	r, err := c.Redrive(ctx, id)
	fmt.Println(r.Rate, r.Failed, err)
	// Output: 1/h 0 <nil>
}

func ExampleClient_PauseRedrive() {
	r := newRedrive("order-63")
	r, err := c.PauseRedrive(ctx, r.ID, "too fast")
	fmt.Println(r.State, err)
	// Output: paused <nil>
}

func ExampleClient_ResumeRedrive() {
	r := newRedrive("order-64")
	r, err := c.PauseRedrive(ctx, r.ID, "")
	if err != nil {
		log.Fatal(err)
	}
	r, err = c.ResumeRedrive(ctx, r.ID, "")
	fmt.Println(r.State, err)
	// Output: running <nil>
}

// ExampleClient_ApproveRedrive approves a redrive that needs no approval: the server has no approval_above.
func ExampleClient_ApproveRedrive() {
	r := newRedrive("order-66")
	_, err := c.ApproveRedrive(ctx, r.ID, "checked the filter")
	fmt.Println(errors.Is(err, client.CodeNotAwaitingApproval))
	// Output: true
}

func ExampleClient_CancelRedrive() {
	r := newRedrive("order-65")
	r, err := c.CancelRedrive(ctx, r.ID, "not needed")
	fmt.Println(r.State, err)
	// Output: canceled <nil>
}

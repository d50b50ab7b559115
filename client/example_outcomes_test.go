package client_test

import (
	"fmt"
	"log"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// Store the cursor in the transaction in which you use the outcome, and start from it after a restart.
func ExampleClient_FollowOutcomes() {
	failed("order-70")
	cursor := "" // what your database has
	for o, err := range c.FollowOutcomes(ctx, cursor) {
		if err != nil {
			log.Fatal(err) // the context has ended, or the key is wrong
		}
		cursor = o.Cursor // store it in the transaction in which you use the outcome
		if o.Ref == "order-70" {
			fmt.Println(o.State, o.Reason)
			break
		}
	}
	// Output: dead exhausted
}

// One page, for programs that run from time to time.
func ExampleClient_Outcomes() {
	failed("order-71")
	cursor := ""
	page, err := c.Outcomes(ctx, cursor, 500, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Data) > 0, page.NextCursor != "")
	// Output: true true
}

// Does every accepted callback of a day have an end?
func ExampleClient_Reconcile() {
	failed("order-72")
	today := time.Now().UTC().Format(time.DateOnly)
	counts, err := c.Reconcile(ctx, client.ReconcileQuery{From: today, GroupBy: "topic"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counts.Total.Balanced, counts.Total.Dead > 0, len(counts.Data) > 0)
	// Output: true true true
}

// Which of our orders were never submitted?
func ExampleClient_Compare() {
	scheduled("order-73")
	comparison, err := c.Compare(ctx, client.ReferenceList{
		From: time.Now().Add(-time.Hour), Refs: []string{"order-73", "order-74"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(comparison.Matched, comparison.Missing)
	// Output: 1 [order-74]
}

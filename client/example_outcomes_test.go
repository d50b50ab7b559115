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

// A list of pairs of reference and topic. The merchant of order-74 was never told that it is paid.
func ExampleClient_Compare_items() {
	_, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Topic: "order.paid", Ref: "order-73",
		Body: new("paid"), Delay: "1h",
	})
	if err != nil {
		log.Fatal(err)
	}
	x, err := c.Compare(ctx, client.ReferenceList{From: time.Now().Add(-time.Hour), Items: []client.RefTopic{
		{Ref: "order-73", Topic: "order.paid"}, {Ref: "order-74", Topic: "order.paid"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Items.Missing, x.Items.Data[0].Ref)
	// Output: 1 order-74
}

// The list of a day can be handed in in pieces, and each piece repeatedly.
func ExampleClient_Expect() {
	day, err := c.Expect(ctx, client.ExpectedList{
		Date:  time.Now().UTC().Format(time.DateOnly),
		Items: []client.RefTopic{{Ref: "order-75", Topic: "order.paid"}},
	})
	fmt.Println(day.Items, err)
	// Output: 1 <nil>
}

// An item that was listed by mistake would be missing for ever.
func ExampleClient_RemoveExpected() {
	typo := client.RefTopic{Ref: "order-57", Topic: "order.paid"}
	today := time.Now().UTC().Format(time.DateOnly)
	if _, err := c.Expect(ctx, client.ExpectedList{Date: today, Items: []client.RefTopic{typo}}); err != nil {
		log.Fatal(err)
	}
	day, err := c.RemoveExpected(ctx, client.ExpectedRemoval{Date: today, Items: []client.RefTopic{typo}})
	fmt.Println(day.Removed, err)
	// Output: 1 <nil>
}

func ExampleClient_RunReconcile() {
	today := time.Now().UTC().Format(time.DateOnly)
	report, err := c.RunReconcile(ctx, today, "the list was late")
	fmt.Println(report.Date == today, report.Balanced, err)
	// Output: true true <nil>
}

func ExampleClient_ReconcileReport() {
	today := time.Now().UTC().Format(time.DateOnly)
	if _, err := c.RunReconcile(ctx, today, "an example"); err != nil {
		log.Fatal(err)
	}
	page, err := c.ReconcileReport(ctx, today, client.FindingMissing, "", 10)
	fmt.Println(page.Date == today, err)
	// Output: true <nil>
}

func ExampleClient_ReconcileReports() {
	shop := newProject("shop-45")
	today := time.Now().UTC().Format(time.DateOnly)
	if _, err := shop.RunReconcile(ctx, today, "an example"); err != nil {
		log.Fatal(err)
	}
	for report, err := range shop.ReconcileReports().All(ctx) {
		fmt.Println(report.Date == today, report.Accepted, report.Wrong, err)
	}
	// Output: true 0 [] <nil>
}

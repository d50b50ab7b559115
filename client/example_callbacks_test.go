package client_test

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

func ExampleClient_Send() {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Topic: "payment.succeeded", Ref: "order-10",
		Payload:        json.RawMessage(`{"paid":10000}`),
		IdempotencyKey: "order-10/paid",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.State, cb.Replayed)
	// Output: scheduled false
}

// A refund waits until its order number is free, is sent in an hour, and is given up after a day.
func ExampleClient_Send_options() {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://bank.example/refunds", Method: "PUT", Ref: "refund-10",
		Body: new("amount=100"), ContentType: "application/x-www-form-urlencoded",
		Headers: client.Headers{{Name: "X-Merchant", Value: "7"}},
		LockKey: "order-10", Delay: "1h", ExpiresIn: "1d",
		Policy:  client.Given(client.Policy{Tiers: []client.Duration{"15s", "3m"}, Timeout: "5s"}),
		Success: client.Named("body-success"), Labels: map[string]string{"channel": "alipay"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.Method, cb.Tiers, cb.ExpiresAt.Sub(cb.DueAt))
	// Output: PUT [15s 3m] 24h0m0s
}

func ExampleClient_SendBatch() {
	callbacks := []client.CallbackRequest{
		{URL: "https://shop.example/notify", Payload: json.RawMessage(`1`), IdempotencyKey: "order-11/paid"},
		{URL: "ftp://shop.example/notify", Payload: json.RawMessage(`2`), IdempotencyKey: "order-12/paid"},
	}
	results, err := c.SendBatch(ctx, callbacks)
	for i, r := range results {
		switch {
		case r.Callback != nil:
			fmt.Println(callbacks[i].IdempotencyKey, "is", r.Callback.State)
		case r.Problem != nil:
			fmt.Println(callbacks[i].IdempotencyKey, "is refused:", r.Problem.Code)
		}
	}
	if err != nil { // send those without a result again, with the same keys
		fmt.Println("not all results are known:", err)
	}
	// Output:
	// order-11/paid is scheduled
	// order-12/paid is refused: invalid
}

func ExampleClient_Callbacks() {
	failed("order-13")
	filter := client.Filter{State: []client.State{client.Dead}, Ref: "order-13"}
	for cb, err := range c.Callbacks(filter).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cb.Reason, cb.LastStatus, cb.LastClass)
	}
	// Output: exhausted 503 http_5xx
}

func ExampleClient_CallbacksByDue() {
	scheduled("order-14")
	for cb, err := range c.CallbacksByDue(client.Filter{Ref: "order-14"}).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(time.Until(cb.DueAt).Round(time.Hour))
	}
	// Output: 1h0m0s
}

func ExampleClient_Callback() {
	id := scheduled("order-15").ID
	cb, err := c.Callback(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.State, cb.AttemptCount, cb.Ref)
	// Output: scheduled 0 order-15
}

// The receiver has moved. The payload stays as it is.
func ExampleClient_PatchCallback() {
	cb := scheduled("order-16")
	cb, err := c.PatchCallback(ctx, cb.ID, client.CallbackPatch{
		URL:    client.Set("https://new.shop.example/notify"),
		Change: client.Change{Reason: "the shop has moved"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.URL)
	// Output: https://new.shop.example/notify
}

func ExampleClient_CancelCallback() {
	cb := scheduled("order-17")
	canceled, err := c.CancelCallback(ctx, cb.ID, "the order was refunded")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(canceled.Result, canceled.Callback.State)
	// Output: canceled canceled
}

func ExampleClient_CancelCallbacks() {
	scheduled("order-18")
	scheduled("order-18")
	results, err := c.CancelCallbacks(ctx, client.CancelRequest{Ref: "order-18"})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Result)
	}
	// Output:
	// canceled
	// canceled
}

// A dead callback gets its whole schedule again, at another address.
func ExampleClient_RetryCallback() {
	cb := failed("order-19")
	cb, err := c.RetryCallback(ctx, cb.ID, client.RetryRequest{
		Ladder: client.LadderRestart, URL: "https://shop.example/notify",
		Change: client.Change{Reason: "the shop works again"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(await(cb.ID).State)
	// Output: succeeded
}

func ExampleClient_RescheduleCallback() {
	cb := scheduled("order-20")
	cb, err := c.RescheduleCallback(ctx, cb.ID, client.RescheduleRequest{Delay: "48h"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(cb.DueAt).Round(time.Hour))
	// Output: 48h0m0s
}

func ExampleClient_Payload() {
	cb := scheduled("order-21")
	payload, err := c.Payload(ctx, cb.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %t\n", payload.Body, payload.Masked)
	// Output: {"paid":10000} false
}

func ExampleClient_Attempts() {
	cb := failed("order-22")
	for attempt, err := range c.Attempts(cb.ID).All(ctx) { // newest first
		if err != nil {
			log.Fatal(err)
		}
		body := strings.TrimSpace(attempt.ResponseBody)
		fmt.Println(attempt.Number, attempt.Class, attempt.StatusCode, body)
	}
	// Output: 1 http_5xx 503 maintenance
}

func ExampleClient_Explain() {
	cb := scheduled("order-23")
	why, err := c.Explain(ctx, cb.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, block := range why.Blocking {
		fmt.Println(block.Code)
	}
	// Output: not_due
}

// The report is for a receiver who says that nothing arrived.
func ExampleClient_Evidence() {
	cb := failed("order-24")
	report, err := c.Evidence(ctx, cb.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(report, "order-24"), strings.Contains(report, "503"))
	// Output: true true
}

// The report in Chinese.
func ExampleClient_EvidenceIn() {
	cb := failed("order-25")
	report, err := c.EvidenceIn(ctx, cb.ID, "zh-CN")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(report, "业务单号：order-25"))
	// Output: true
}

// Query is for links to the list of callbacks, such as its CSV.
func ExampleFilter_Query() {
	q := client.Filter{State: []client.State{client.Dead}, Topic: "payment.succeeded"}.Query()
	q.Set("format", "csv")
	fmt.Println("/v1/callbacks?" + q.Encode())
	// Output: /v1/callbacks?format=csv&state=dead&topic=payment.succeeded
}

package client_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// newPoll returns a poll that asks in an hour.
func newPoll(ref string) client.Callback {
	poll, err := c.CreatePoll(ctx, client.PollRequest{
		Ref: ref, Delay: "1h", Request: &client.CallbackRequest{URL: "https://bank.example/", Method: "GET"},
		Until: &client.Until{Success: []client.Predicate{{"pointer": "/trade_state", "eq": "SUCCESS"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	return poll
}

// Ask a bank for the state of a refund until it is final, and send the result to the payment service.
func ExampleClient_CreatePoll() {
	mux.HandleFunc("GET bank.example/refunds/50", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"trade_state":"SUCCESS"}`)
	})
	poll, err := c.CreatePoll(ctx, client.PollRequest{
		Ref:     "refund-50",
		Request: &client.CallbackRequest{URL: "https://bank.example/refunds/50", Method: "GET"},
		Policy: client.Given(client.Policy{
			Tiers: []client.Duration{"30s", "5m"}, RepeatLast: true, Deadline: "72h",
		}),
		Until: &client.Until{
			Success: []client.Predicate{{"pointer": "/trade_state", "eq": "SUCCESS"}},
			Failure: []client.Predicate{{"pointer": "/trade_state", "in": []string{"CLOSED", "FAILED"}}},
		},
		Context:        json.RawMessage(`{"order":"order-50"}`),
		OnResult:       &client.CallbackRequest{URL: "https://payments.example/refunds"},
		IdempotencyKey: "refund-50",
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := await(poll.ID)
	fmt.Println(ended.State, ended.Reason)
	// Output: succeeded success
}

func ExampleClient_Poll() {
	id := newPoll("refund-51").ID
	poll, err := c.Poll(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(poll.State, poll.Poll.Outcome == "", poll.Poll.Errors)
	// Output: scheduled true 0
}

// The bank has called: the poll ends with what it said.
func ExampleClient_ResolvePoll() {
	poll := newPoll("refund-52")
	resolved, err := c.ResolvePoll(ctx, poll.ID, client.ResolveRequest{
		Data: json.RawMessage(`{"trade_state":"SUCCESS"}`), Change: client.Change{Reason: "by phone"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resolved.Result, resolved.Callback.Reason)
	// Output: resolved resolved
}

// newSchedule returns a schedule that is due once a year.
func newSchedule(name string) client.Schedule {
	s, err := c.CreateSchedule(ctx, client.ScheduleChange{
		Name: &name, Cron: new("0 0 1 1 *"),
		Callback: json.RawMessage(`{"url":"https://shop.example/report","payload":{}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	return s
}

func ExampleClient_CreateSchedule() {
	s, err := c.CreateSchedule(ctx, client.ScheduleChange{
		Name: new("settlement"), Cron: new("30 1 * * *"), Timezone: client.Set("Asia/Shanghai"),
		Callback: json.RawMessage(`{"url":"https://shop.example/settle","payload":{"day":"yesterday"}}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Name, s.Enabled, s.NextAt.UTC().Format("15:04"))
	// Output: settlement true 17:30
}

func ExampleClient_Schedules() {
	newSchedule("yearly-1")
	for s, err := range c.Schedules("yearly-1", new(true)).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Name, s.Cron)
	}
	// Output: yearly-1 0 0 1 1 *
}

func ExampleClient_Schedule() {
	id := newSchedule("yearly-2").ID
	s, err := c.Schedule(ctx, id)
	fmt.Println(s.Name, s.Timezone, err)
	// Output: yearly-2 UTC <nil>
}

func ExampleClient_PatchSchedule() {
	s := newSchedule("yearly-3")
	s, err := c.PatchSchedule(ctx, s.ID, client.ScheduleChange{Enabled: new(false)})
	fmt.Println(s.Enabled, s.NextAt.IsZero(), err)
	// Output: false true <nil>
}

func ExampleClient_DeleteSchedule() {
	s := newSchedule("yearly-4")
	fmt.Println(c.DeleteSchedule(ctx, s.ID, "unused"))
	// Output: <nil>
}

func ExampleClient_RunSchedule() {
	s := newSchedule("yearly-5")
	cb, err := c.RunSchedule(ctx, s.ID, "the first report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.URL, await(cb.ID).State)
	// Output: https://shop.example/report succeeded
}

func ExampleClient_ScheduleRuns() {
	s := newSchedule("yearly-6")
	if _, err := c.RunSchedule(ctx, s.ID, ""); err != nil {
		log.Fatal(err)
	}
	runs, err := c.ScheduleRuns(ctx, s.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, run := range runs {
		fmt.Println(run.Trigger)
	}
	// Output: manual
}

package client_test

import (
	"encoding/json"
	"fmt"
	"log"
	"reflect"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

func ExampleDurationOf() {
	fmt.Println(client.DurationOf(90 * time.Minute))
	// Output: 1h30m0s
}

func ExampleDuration_Parse() {
	d, err := client.Duration("1d1h13m15s").Parse()
	fmt.Println(d, err)
	// Output: 25h13m15s <nil>
}

// A change has three cases for a field: left out, null, and a value.
func ExampleSet() {
	change := client.LaneLimits{Rate: client.Set("10/s")}
	text, err := client.AppendJSON(nil, change)
	fmt.Println(string(text), err)
	// Output: {"rate":"10/s"} <nil>
}

func ExampleNull() {
	change := client.LaneLimits{Rate: client.Null[string]()}
	text, err := client.AppendJSON(nil, change)
	fmt.Println(string(text), err)
	// Output: {"rate":null} <nil>
}

func ExampleOptional_Get() {
	limit := client.Set(4)
	value, ok := limit.Get()
	fmt.Println(value, ok)
	// Output: 4 true
}

func ExampleOptional_IsNull() {
	limit := client.Null[int]()
	fmt.Println(limit.IsNull(), limit.IsZero())
	// Output: true false
}

func ExampleOptional_Pointer() {
	limit := client.Null[int]()
	fmt.Println(limit.Pointer() == nil)
	// Output: true
}

// Give and SetNull are for decoders.
func ExampleOptional_Give() {
	var rate client.Optional[string]
	err := json.Unmarshal([]byte(`"10/s"`), rate.Give())
	fmt.Println(*rate.Pointer(), err)
	// Output: 10/s <nil>
}

func ExampleOptional_SetNull() {
	var rate client.Optional[string]
	rate.SetNull()
	fmt.Println(rate.IsNull())
	// Output: true
}

func ExampleNamed() {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Body: new("paid"), Policy: client.Named("payment"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.Policy.Name, *cb.MaxAttempts)
	// Output: payment 10
}

func ExampleGiven() {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Body: new("paid"),
		Policy: client.Given(client.Policy{Tiers: []client.Duration{"10s", "1m"}}),
		Signer: client.Given(map[string]any{"type": "hmac-sha256-body", "header": "X-Hub-Signature-256"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.Tiers, *cb.MaxAttempts)
	// Output: [10s 1m] 3
}

func ExampleHeaders_Get() {
	h := client.Headers{{Name: "X-Merchant", Value: "7"}}
	fmt.Println(h.Get("x-merchant"))
	// Output: 7
}

func ExampleAppendJSON() {
	text, err := client.AppendJSON(nil, client.CancelRequest{Ref: "order-1"})
	fmt.Println(string(text), err)
	// Output: {"ref":"order-1"} <nil>
}

func ExampleAppendString() {
	fmt.Println(string(client.AppendString(nil, "<a>\n")))
	// Output: "<a>\n"
}

func ExampleFields() {
	for _, f := range client.Fields(reflect.TypeFor[client.CancelRequest]()) {
		fmt.Println(f.Name, f.Required)
	}
	// Output:
	// ref true
	// topic false
	// include_terminal false
	// reason false
}

package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// webhookSecret is a secret that a merchant and the dispatcher have.
const webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u"

// A receiver of webhooks, and a callback that it gets.
func ExampleVerifier_Middleware() {
	v, err := client.NewVerifier(webhookSecret)
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /webhooks", v.Middleware(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			// Attempts of one callback have the same id: use it to ignore repetitions.
			fmt.Println(r.Header.Get(client.WebhookID) != "", string(body))
		})))

	_, err = c.PutEndpoint(ctx, "verified", client.EndpointChange{EndpointFields: client.EndpointFields{
		URL: client.Set("https://shop.example/webhooks"), Secret: webhookSecret,
	}})
	if err != nil {
		log.Fatal(err)
	}
	cb, err := c.Send(ctx, client.CallbackRequest{
		Endpoint: "verified", Payload: json.RawMessage(`{"paid":10000}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(await(cb.ID).State)
	// Output:
	// true {"paid":10000}
	// succeeded
}

// During a rotation a receiver accepts both secrets.
func ExampleNewVerifier() {
	old, current := webhookSecret, "whsec_bm1sa2ppaGdmZWRjYmE5ODc2NTQzMjEw"
	v, err := client.NewVerifier(current, old)
	fmt.Println(v != nil, err)
	// Output: true <nil>
}

func ExampleVerifier_Verify() {
	v, err := client.NewVerifier(webhookSecret)
	if err != nil {
		log.Fatal(err)
	}
	header := http.Header{ // as received in 2026
		"Webhook-Id":        {"cb_01JD0000000000000000000001"},
		"Webhook-Timestamp": {"1795248000"},
		"Webhook-Signature": {"v1,pxS8W7Pp0wVo2t8Bc1LMcW1n3Ynp0y3oJzyvL6K0rLk="},
	}
	err = v.Verify(header, []byte(`{"paid":10000}`))
	fmt.Println(errors.Is(err, client.ErrWebhookTimestamp)) // a replay of an old request

	v.Tolerance = -1
	err = v.Verify(header, []byte(`{"paid":99999}`))
	fmt.Println(errors.Is(err, client.ErrWebhookSignature)) // a changed body
	// Output:
	// true
	// true
}

package client_test

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// newEndpoint returns an endpoint with an external id.
func newEndpoint(externalID string) client.Endpoint {
	ep, err := c.PutEndpoint(ctx, externalID, client.EndpointChange{EndpointFields: client.EndpointFields{
		URL: client.Set("https://" + externalID + ".example/notify"),
	}})
	if err != nil {
		log.Fatal(err)
	}
	return ep.Endpoint
}

func ExampleClient_CreateEndpoint() {
	ep, err := c.CreateEndpoint(ctx, client.EndpointChange{EndpointFields: client.EndpointFields{
		Name:   client.Set("Shop 7"),
		URL:    client.Set("https://shop-7.example/notify"),
		Topics: client.Set([]string{"payment.*"}),
		Rate:   client.Set("50/s"),
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ep.Topics, ep.Rate, strings.HasPrefix(ep.Secret, "whsec_"))
	// Output: [payment.*] 50/s true
}

// The merchant's number is the id of the endpoint. The second call replaces it.
func ExampleClient_PutEndpoint() {
	for _, url := range []string{"https://old.shop-8.example/notify", "https://shop-8.example/notify"} {
		ep, err := c.PutEndpoint(ctx, "merchant-8", client.EndpointChange{
			EndpointFields: client.EndpointFields{URL: client.Set(url)},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ep.ExternalID, ep.URL)
	}
	// Output:
	// merchant-8 https://old.shop-8.example/notify
	// merchant-8 https://shop-8.example/notify
}

func ExampleClient_PutEndpoints() {
	results, err := c.PutEndpoints(ctx, client.EndpointBatch{Endpoints: []client.EndpointFields{
		{ExternalID: client.Set("merchant-9"), URL: client.Set("https://shop-9.example/notify")},
		{ExternalID: client.Set("merchant-10"), URL: client.Set("not a URL")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Status, r.Endpoint != nil)
	}
	// Output:
	// 201 true
	// 422 false
}

func ExampleClient_Endpoints() {
	newEndpoint("merchant-11")
	for ep, err := range c.Endpoints(client.EndpointFilter{Search: "merchant-11"}).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ep.ExternalID, ep.Enabled)
	}
	// Output: merchant-11 true
}

func ExampleClient_Endpoint() {
	id := newEndpoint("merchant-12").ID
	ep, err := c.Endpoint(ctx, id)
	fmt.Println(ep.URL, err)
	// Output: https://merchant-12.example/notify <nil>
}

func ExampleClient_EndpointByExternalID() {
	newEndpoint("merchant-13")
	ep, err := c.EndpointByExternalID(ctx, "merchant-13")
	fmt.Println(ep.URL, err)
	// Output: https://merchant-13.example/notify <nil>
}

// A field that is left out stays unchanged, and Null removes a value.
func ExampleClient_PatchEndpoint() {
	ep := newEndpoint("merchant-14")
	ep, err := c.PatchEndpoint(ctx, ep.ID, client.EndpointChange{
		EndpointFields: client.EndpointFields{Concurrency: client.Set(4), Rate: client.Null[string]()},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ep.URL, ep.Concurrency)
	// Output: https://merchant-14.example/notify 4
}

func ExampleClient_DeleteEndpoint() {
	ep := newEndpoint("merchant-15")
	_, err := c.DeleteEndpoint(ctx, ep.ID, "the merchant has left")
	fmt.Println(err)
	// Output: <nil>
}

func ExampleClient_PauseEndpoint() {
	ep := newEndpoint("merchant-16")
	ep, err := c.PauseEndpoint(ctx, ep.ID, client.PauseRequest{
		For: "2h", Change: client.Change{Reason: "maintenance of the shop"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ep.Paused, ep.PauseReason)
	// Output: true maintenance of the shop
}

func ExampleClient_ResumeEndpoint() {
	ep := newEndpoint("merchant-17")
	ep, err := c.ResumeEndpoint(ctx, ep.ID, "the shop works again")
	fmt.Println(ep.Paused, err)
	// Output: false <nil>
}

func ExampleClient_TestEndpoint() {
	ep := newEndpoint("merchant-18")
	cb, err := c.TestEndpoint(ctx, ep.ID, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cb.Topic, await(cb.ID).State)
	// Output: dispatcher.test succeeded
}

func ExampleClient_EndpointSecret() {
	ep := newEndpoint("merchant-19")
	secret, err := c.EndpointSecret(ctx, ep.ID)
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.NewVerifier(secret.Secret) // what the merchant does with it
	fmt.Println(err)
	// Output: <nil>
}

// For a day, both secrets sign.
func ExampleClient_RotateEndpointSecret() {
	ep := newEndpoint("merchant-20")
	rotated, err := c.RotateEndpointSecret(ctx, ep.ID, client.Rotation{Overlap: "1d"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rotated.PreviousSignsUntil.Sub(rotated.RotatedAt).Round(time.Minute))
	// Output: 24h0m0s
}

// An event becomes one callback for each endpoint that subscribes to its topic.
func ExampleClient_SendEvent() {
	for _, merchant := range []string{"merchant-21", "merchant-22"} {
		_, err := c.PutEndpoint(ctx, merchant, client.EndpointChange{EndpointFields: client.EndpointFields{
			URL: client.Set("https://shop.example/notify"), Topics: client.Set([]string{"rates.*"}),
		}})
		if err != nil {
			log.Fatal(err)
		}
	}
	event, err := c.SendEvent(ctx, client.CallbackRequest{
		Topic: "rates.changed", Payload: json.RawMessage(`{"eur_usd":"1.16"}`),
		IdempotencyKey: "rates/2026-11-21",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(event.Callbacks))
	// Output: 2
}

// The secret of callbacks that have no endpoint is that of their lane.
func ExampleClient_Secret() {
	cb := scheduled("order-30")
	secret, err := c.Secret(ctx, client.SecretQuery{Lane: cb.Lane})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(secret.Use, strings.HasPrefix(secret.Secret, "whsec_"))
	// Output: hmac true
}

func ExampleClient_RotateSecret() {
	rotated, err := c.RotateSecret(ctx, client.ProjectRotation{
		Use: "ed25519", Rotation: client.Rotation{Label: "2026"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rotated.Label, strings.HasPrefix(rotated.Public, "whpk_"))
	// Output: 2026 true
}

// After a change of the master key, all stored secrets get the new one.
func ExampleClient_Reencrypt() {
	for from := ""; ; {
		step, err := c.Reencrypt(ctx, client.ReencryptRequest{From: from})
		if err != nil {
			log.Fatal(err)
		}
		from = step.Next
		if from == "" {
			fmt.Println("left:", step.Left, "failed:", step.Failed)
			break
		}
	}
	// Output: left: 0 failed: 0
}

// The merchant opens the link without a key. It sees the callbacks of this endpoint alone.
func ExampleClient_CreateViewLink() {
	ep := newEndpoint("merchant-30")
	link, err := c.CreateViewLink(ctx, ep.ID, client.ViewLinkRequest{ExpiresIn: "7d", Resend: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Until(link.ExpiresAt).Round(time.Hour))
	// Output: 168h0m0s
}

func ExampleClient_RevokeViewLinks() {
	ep := newEndpoint("merchant-31")
	_, err := c.RevokeViewLinks(ctx, ep.ID, "the link was published")
	fmt.Println(err)
	// Output: <nil>
}

package client_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

func ExampleClient_Lanes() {
	_, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Body: new("paid"), Lane: "merchant-30", Delay: "1h",
	})
	if err != nil {
		log.Fatal(err)
	}
	for lane, err := range c.Lanes("merchant-30", false).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(lane.Lane.Lane, lane.Paused)
	}
	// Output: merchant-30 false
}

func ExampleClient_PauseLane() {
	lane, err := c.PauseLane(ctx, "merchant-31", client.PauseRequest{For: "30m"})
	fmt.Println(lane.Paused, err)
	// Output: true <nil>
}

func ExampleClient_ResumeLane() {
	lane, err := c.ResumeLane(ctx, "merchant-31", "the bank is back")
	fmt.Println(lane.Paused, err)
	// Output: false <nil>
}

func ExampleClient_LimitLane() {
	lane, err := c.LimitLane(ctx, "merchant-32", client.LaneLimits{
		Rate: client.Set("10/s"), Concurrency: client.Set(2),
	})
	fmt.Println(lane.Rate, lane.Concurrency, err)
	// Output: 10/s 2 <nil>
}

// Nothing of the project is sent, and everything is accepted.
func ExampleClient_PauseProject() {
	shop := newProject("shop-40")
	pause, err := shop.PauseProject(ctx, client.PauseRequest{Change: client.Change{Reason: "migration"}})
	fmt.Println(pause.Paused, pause.PauseReason, err)
	// Output: true migration <nil>
}

func ExampleClient_ResumeProject() {
	shop := newProject("shop-41")
	pause, err := shop.ResumeProject(ctx, "the migration has ended")
	fmt.Println(pause.Paused, err)
	// Output: false <nil>
}

// newProject creates a project and returns a client for it.
func newProject(id string) *client.Client {
	_, err := c.CreateProject(ctx, client.ProjectRequest{ID: id})
	if err != nil {
		log.Fatal(err)
	}
	shop, err := client.New(client.Options{URL: serverURL, Key: adminKey, Project: id})
	if err != nil {
		log.Fatal(err)
	}
	return shop
}

func ExampleClient_CreateProject() {
	p, err := c.CreateProject(ctx, client.ProjectRequest{
		ID: "shop-42", ProjectFields: client.ProjectFields{
			Name: client.Set("Shop 42"), Policy: client.Set(client.Named("payment")),
			Quotas: client.Set(client.QuotaChange{OpenCallbacks: client.Set(int64(1_000_000))}),
		},
	})
	fmt.Println(p.ID, p.Policy.Name, p.Quotas.OpenCallbacks, err)
	// Output: shop-42 payment 1000000 <nil>
}

func ExampleClient_Projects() {
	newProject("shop-43")
	for p, err := range c.Projects().All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if p.ID == "shop-43" {
			fmt.Println(p.ID)
		}
	}
	// Output: shop-43
}

func ExampleClient_Project() {
	p, err := c.Project(ctx, "default")
	fmt.Println(p.ID, p.Paused, err)
	// Output: default false <nil>
}

func ExampleClient_PatchProject() {
	newProject("shop-44")
	p, err := c.PatchProject(ctx, "shop-44", client.ProjectFields{
		HeaderHosts: client.Set([]string{"shop.example"}),
	})
	fmt.Println(p.HeaderHosts, err)
	// Output: [shop.example] <nil>
}

// A key that can only send, for the payment service.
func ExampleClient_CreateKey() {
	created, err := c.CreateKey(ctx, client.KeyRequest{
		Name: "checkout", Scopes: []client.Scope{client.ScopeSend}, ExpiresIn: "90d",
	})
	if err != nil {
		log.Fatal(err)
	}
	sender, err := client.New(client.Options{URL: serverURL, Key: created.Text})
	if err != nil {
		log.Fatal(err)
	}
	_, err = sender.Stats(ctx)
	fmt.Println(created.Scopes, errors.Is(err, client.CodeForbidden))
	// Output: [send] true
}

func ExampleClient_Keys() {
	_, err := c.CreateKey(ctx, client.KeyRequest{Name: "audit", Scopes: []client.Scope{client.ScopeRead}})
	if err != nil {
		log.Fatal(err)
	}
	for k, err := range c.Keys().All(ctx) { // newest first
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(k.Name, k.RevokedAt.IsZero())
		break
	}
	// Output: audit true
}

func ExampleClient_RevokeKey() {
	created, err := c.CreateKey(ctx, client.KeyRequest{Name: "old", Scopes: []client.Scope{client.ScopeSend}})
	if err != nil {
		log.Fatal(err)
	}
	revoked, err := c.RevokeKey(ctx, created.ID, "leaked")
	fmt.Println(revoked.Name, !revoked.RevokedAt.IsZero(), err)
	// Output: old true <nil>
}

// Nothing of any project is sent, and everything is accepted.
func ExampleClient_StopSending() {
	stop, err := c.StopSending(ctx, client.PauseRequest{
		For: "30m", Change: client.Change{Reason: "wrong amounts since 14:00"},
	})
	fmt.Println(stop.Stopped, stop.Reason, err)
	// Output: true wrong amounts since 14:00 <nil>
}

func ExampleClient_SendingStop() {
	stop, err := c.SendingStop(ctx)
	fmt.Println(stop.Since.IsZero() != stop.Stopped, err)
	// Output: true <nil>
}

func ExampleClient_StartSending() {
	stop, err := c.StartSending(ctx, "the amounts are right again")
	fmt.Println(stop.Stopped, err)
	// Output: false <nil>
}

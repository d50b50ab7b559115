package client_test

import (
	"fmt"
	"log"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

func ExampleClient_Policies() {
	for p, err := range c.Policies(time.Time{}).All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if p.Name == "payment" {
			fmt.Println(p.Attempts, p.Tiers)
		}
	}
	// Output: 10 [15s 3m 10m 30m 30m 1h 2h 6h 15h]
}

// When are the attempts of a policy, if the first one is at a given time?
func ExampleClient_Policy() {
	from := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	p, err := c.Policy(ctx, "exp(1m,2,1h,4)", from)
	if err != nil {
		log.Fatal(err)
	}
	for _, at := range p.Times {
		fmt.Println(at.Format(time.TimeOnly))
	}
	// Output:
	// 08:00:00
	// 08:01:00
	// 08:03:00
	// 08:07:00
	// 08:15:00
}

func ExampleClient_PutPolicy() {
	p, err := c.PutPolicy(ctx, "refunds", client.PolicyPut{Policy: client.Policy{
		Tiers: []client.Duration{"1m", "10m", "1h"}, Timeout: "20s", Jitter: 0.1,
	}})
	fmt.Println(p.Name, p.Attempts, p.Sum, err)
	// Output: refunds 4 1h11m <nil>
}

func ExampleClient_DeletePolicy() {
	_, err := c.PutPolicy(ctx, "old", client.PolicyPut{Policy: client.Policy{Tiers: []client.Duration{"1m"}}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.DeletePolicy(ctx, "old", "unused"))
	// Output: <nil>
}

func ExampleClient_SuccessRules() {
	for rule, err := range c.SuccessRules().All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if rule.Name == "body-success" {
			fmt.Println(rule.Own)
		}
	}
	// Output: false
}

func ExampleClient_SuccessRule() {
	rule, err := c.SuccessRule(ctx, "http-2xx")
	fmt.Printf("%s %v\n", rule.Rule, err)
	// Output: {"status":["200-299"]} <nil>
}

// The bank answers 200 with {"code": 0} if it has accepted the order.
func ExampleClient_PutSuccessRule() {
	rule, err := c.PutSuccessRule(ctx, "bank-ok", client.RulePut{SuccessRule: client.SuccessRule{
		Status: client.Statuses{200},
		Body:   &client.BodyTest{JSON: []client.Predicate{{"pointer": "/code", "eq": 0}}},
	}})
	fmt.Println(rule.Name, rule.Own, err)
	// Output: bank-ok true <nil>
}

func ExampleClient_DeleteSuccessRule() {
	_, err := c.PutSuccessRule(ctx, "old", client.RulePut{SuccessRule: client.SuccessRule{
		Body: &client.BodyTest{Contains: "OK"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.DeleteSuccessRule(ctx, "old", "unused"))
	// Output: <nil>
}

func ExampleClient_Profiles() {
	for profile, err := range c.Profiles().All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if profile.Name == "alipay" {
			fmt.Println(profile.Success.Name)
		}
	}
	// Output: alipay
}

func ExampleClient_Profile() {
	profile, err := c.Profile(ctx, "standard")
	fmt.Println(profile.Policy.Name, err)
	// Output: standard-webhooks <nil>
}

func ExampleClient_PutProfile() {
	profile, err := c.PutProfile(ctx, "merchants", client.ProfilePut{
		Policy: client.Named("payment"), Success: client.Named("body-success"), Timeout: "10s",
	})
	fmt.Println(profile.Name, profile.Timeout, err)
	// Output: merchants 10s <nil>
}

func ExampleClient_DeleteProfile() {
	if _, err := c.PutProfile(ctx, "old", client.ProfilePut{Policy: client.Named("payment")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.DeleteProfile(ctx, "old", "unused"))
	// Output: <nil>
}

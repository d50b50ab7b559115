package client_test

import (
	"fmt"
	"log"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// deadAlert returns a new alert about dead callbacks.
func deadAlert(name string) client.Alert {
	alert, err := c.CreateAlert(ctx, client.AlertChange{
		Name: new(name), When: &client.AlertWhen{Kind: "dead_rate", Above: "10"},
		Sink: &client.AlertSink{
			Type: "slack", URL: "https://hooks.slack.com/services/T0/B0/secret",
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	return alert
}

// A robot gets a message when the success rate of an endpoint falls below 90 %. The URL is a credential, so
// the response masks it.
func ExampleClient_CreateAlert() {
	alert, err := c.CreateAlert(ctx, client.AlertChange{
		Name: new("receivers"), When: &client.AlertWhen{Kind: "endpoint_success", Below: 90},
		Sink: &client.AlertSink{
			Type: "dingtalk", Lang: "zh-CN", Secret: "SEC-of-the-robot",
			URL: "https://oapi.dingtalk.com/robot/send?access_token=secret",
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(alert.State, alert.Sink.URL, alert.Sink.Secret)
	// Output: ok https://oapi.dingtalk.com/*** ***
}

func ExampleClient_Alerts() {
	deadAlert("dead of shop 50")
	for alert, err := range c.Alerts("shop 50").All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(alert.Name, alert.When.Kind)
	}
	// Output: dead of shop 50 dead_rate
}

func ExampleClient_Alert() {
	alert, err := c.Alert(ctx, deadAlert("dead of shop 51").ID)
	fmt.Println(alert.Name, alert.Firing, err)
	// Output: dead of shop 51 0 <nil>
}

// No messages for an hour.
func ExampleClient_PatchAlert() {
	alert, err := c.PatchAlert(ctx, deadAlert("dead of shop 52").ID, client.AlertChange{
		SilenceUntil: client.Set(time.Now().Add(time.Hour)), Change: client.Change{Reason: "migration"},
	})
	fmt.Println(!alert.SilenceUntil.IsZero(), err)
	// Output: true <nil>
}

func ExampleClient_DeleteAlert() {
	fmt.Println(c.DeleteAlert(ctx, deadAlert("dead of shop 53").ID, "the shop has closed"))
	// Output: <nil>
}

// Follow the callback to see whether the robot accepted the message.
func ExampleClient_TestAlert() {
	message, err := c.TestAlert(ctx, deadAlert("dead of shop 54").ID, "is the robot right?")
	fmt.Println(message.Topic, err)
	// Output: dispatcher.alert <nil>
}

func ExampleClient_AlertFirings() {
	firings, err := c.AlertFirings(ctx, deadAlert("dead of shop 55").ID)
	fmt.Println(len(firings), err)
	// Output: 0 <nil>
}

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/web/webtest"
)

// The examples use a real server, and a client with its admin key.
var (
	ctx       = context.Background()
	c         *client.Client
	serverURL string
	// mux has the receivers. It replaces the network: a pattern has the host of the receiver.
	mux = http.NewServeMux()
)

// adminKey is the key of the server. key is the name that examples use.
const (
	adminKey = webtest.AdminKey
	key      = adminKey
)

func TestMain(m *testing.M) {
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "success") })
	mux.HandleFunc("down.example/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "maintenance", http.StatusServiceUnavailable)
	})
	server, err := webtest.Start(mux)
	if err != nil {
		log.Fatal(err)
	}
	serverURL = server.URL
	c, err = client.New(client.Options{URL: serverURL, Key: adminKey})
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// scheduled returns a callback that is due in an hour.
func scheduled(ref string) client.Callback {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://shop.example/notify", Ref: ref, Payload: json.RawMessage(`{"paid":10000}`), Delay: "1h",
	})
	if err != nil {
		log.Fatal(err)
	}
	return cb
}

// failed returns a callback that is dead, because its receiver is down.
func failed(ref string) client.Callback {
	cb, err := c.Send(ctx, client.CallbackRequest{
		URL: "https://down.example/notify", Ref: ref, Payload: json.RawMessage(`{"paid":10000}`),
		Policy: client.Given(client.Policy{Tiers: []client.Duration{}}),
	})
	if err != nil {
		log.Fatal(err)
	}
	return await(cb.ID)
}

// await returns a callback that has finished.
func await(id string) client.Callback {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		cb, err := c.Callback(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		if !cb.FinishedAt.IsZero() {
			return cb
		}
		if time.Now().After(deadline) {
			log.Fatalf("%s is still %s", id, cb.State)
		}
	}
}

// lossy is a transport to the real server that loses the first responses, after the server has committed.
type lossy struct{ lose, requests int }

// RoundTrip sends a request, and returns its response or an error.
func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	l.requests++
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || l.requests > l.lose {
		return res, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil {
		err = res.Body.Close()
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// TestLostResponse loses responses of the real server. Each call that sends again creates everything once; a
// call that has no key is sent once.
func TestLostResponse(t *testing.T) {
	for name, tc := range map[string]struct {
		send func(c *client.Client) error
		want int
	}{
		"one": {func(c *client.Client) error {
			cb, err := c.Send(ctx, client.CallbackRequest{
				URL: "https://shop.example/", Ref: "lost-one", Delay: "1h", Body: new("x"),
			})
			if err == nil && !cb.Replayed {
				err = fmt.Errorf("%s is not replayed", cb.ID)
			}
			return err
		}, 1},
		"own-key": {func(c *client.Client) error {
			_, err := c.Send(ctx, client.CallbackRequest{
				URL: "https://shop.example/", Ref: "lost-own-key", Delay: "1h", Body: new("x"),
				IdempotencyKey: "order-77",
			})
			return err
		}, 1},
		"batch": {func(c *client.Client) error {
			request := client.CallbackRequest{
				URL: "https://shop.example/", Ref: "lost-batch", Delay: "1h", Body: new("x"),
			}
			got, err := c.SendBatch(ctx, []client.CallbackRequest{request, request, request})
			for _, r := range got {
				if r.Callback == nil || !r.Callback.Replayed {
					t.Errorf("a result of the batch is %+v", r)
				}
			}
			return err
		}, 3},
		"event": {func(c *client.Client) error {
			url := client.Set("https://shop.example/")
			change := client.EndpointChange{EndpointFields: client.EndpointFields{
				URL: url, Topics: client.Set([]string{"lost.event"}),
			}}
			_, err := c.PutEndpoint(ctx, "lost-event", change)
			if !client.Ambiguous(err) {
				return fmt.Errorf("the first response was not lost: %w", err)
			}
			_, err = c.SendEvent(ctx, client.CallbackRequest{
				Topic: "lost.event", Ref: "lost-event", Delay: "1h", Body: new("x"),
			})
			return err
		}, 1},
		"poll": {func(c *client.Client) error {
			_, err := c.CreatePoll(ctx, client.PollRequest{
				Ref: "lost-poll", Delay: "1h",
				Request: &client.CallbackRequest{URL: "https://bank.example/", Method: "GET"},
				Until:   &client.Until{Success: []client.Predicate{{"pointer": "/state", "eq": "OK"}}},
			})
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &lossy{lose: 2}
			c := newClient(t, client.Options{URL: serverURL, HTTPClient: &http.Client{Transport: l}})
			if err := tc.send(c); err != nil || l.requests <= l.lose {
				t.Errorf("%v after %d requests", err, l.requests)
			}
			found := 0
			for _, err := range c.Callbacks(client.Filter{Ref: "lost-" + name}).All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				found++
			}
			if found != tc.want {
				t.Errorf("%d callbacks, want %d", found, tc.want)
			}
		})
	}
}

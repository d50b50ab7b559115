package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
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

// runs counts the calls of unique.
var runs atomic.Int64

// unique returns a name that no other test has, and no other run of the same test: all use one server.
func unique(name string) string { return fmt.Sprint(name, "-", runs.Add(1)) }

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

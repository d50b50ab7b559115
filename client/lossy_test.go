package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

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
		send func(c *client.Client, ref string) error
		want int
	}{
		"one": {func(c *client.Client, ref string) error {
			cb, err := c.Send(ctx, client.CallbackRequest{
				URL: "https://shop.example/", Ref: ref, Delay: "1h", Body: new("x"),
			})
			if err == nil && !cb.Replayed {
				err = fmt.Errorf("%s is not replayed", cb.ID)
			}
			return err
		}, 1},
		"own-key": {func(c *client.Client, ref string) error {
			_, err := c.Send(ctx, client.CallbackRequest{
				URL: "https://shop.example/", Ref: ref, Delay: "1h", Body: new("x"),
				IdempotencyKey: ref,
			})
			return err
		}, 1},
		"batch": {func(c *client.Client, ref string) error {
			request := client.CallbackRequest{
				URL: "https://shop.example/", Ref: ref, Delay: "1h", Body: new("x"),
			}
			got, err := c.SendBatch(ctx, []client.CallbackRequest{request, request, request})
			for _, r := range got {
				if r.Callback == nil || !r.Callback.Replayed {
					t.Errorf("a result of the batch is %+v", r)
				}
			}
			return err
		}, 3},
		"event": {func(c *client.Client, ref string) error {
			url := client.Set("https://shop.example/")
			change := client.EndpointChange{EndpointFields: client.EndpointFields{
				URL: url, Topics: client.Set([]string{"lost.event"}),
			}}
			_, err := c.PutEndpoint(ctx, "lost-event", change)
			if !client.Ambiguous(err) {
				return fmt.Errorf("the first response was not lost: %w", err)
			}
			_, err = c.SendEvent(ctx, client.CallbackRequest{
				Topic: "lost.event", Ref: ref, Delay: "1h", Body: new("x"),
			})
			return err
		}, 1},
		"poll": {func(c *client.Client, ref string) error {
			_, err := c.CreatePoll(ctx, client.PollRequest{
				Ref: ref, Delay: "1h",
				Request: &client.CallbackRequest{URL: "https://bank.example/", Method: "GET"},
				Until:   &client.Until{Success: []client.Predicate{{"pointer": "/state", "eq": "OK"}}},
			})
			return err
		}, 1},
		"relay": {func(c *client.Client, ref string) error {
			request := fmt.Sprintf(`{"url":"https://shop.example/","ref":%q,"delay":"1h"}`, ref)
			got, err := c.Relay(ctx, "lost", client.RelayBatch{Rows: []client.RelayRow{
				{ID: ref, Request: []byte(request), Body: new([]byte("x"))},
			}})
			if err == nil && got.Results[0].Status != http.StatusOK {
				err = fmt.Errorf("the row has status %d", got.Results[0].Status)
			}
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := unique("lost-" + name)
			l := &lossy{lose: 2}
			c := newClient(t, client.Options{URL: serverURL, HTTPClient: &http.Client{Transport: l}})
			if err := tc.send(c, ref); err != nil || l.requests <= l.lose {
				t.Errorf("%v after %d requests", err, l.requests)
			}
			found := 0
			for _, err := range c.Callbacks(client.Filter{Ref: ref}).All(ctx) {
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

// TestFeedOfTheServer reads the outcomes of a real server over a connection that breaks again and again. The
// reader stops after every third outcome and continues from its cursor.
func TestFeedOfTheServer(t *testing.T) {
	const callbacks = 20
	project := unique("feed")
	newProject(project)
	o := client.Options{URL: serverURL, Key: adminKey, Project: project}
	sender := newClient(t, o)
	o.HTTPClient = &http.Client{Transport: &breaking{}}
	reader := newClient(t, o)
	want := map[string]bool{}
	for i := range callbacks {
		cb, err := sender.Send(ctx, client.CallbackRequest{
			URL: "https://shop.example/", Ref: fmt.Sprint("feed-", i), Body: new("x"),
		})
		if err != nil {
			t.Fatal(err)
		}
		want[cb.ID] = true
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cursor, last := "", time.Time{}
	for len(want) > 0 {
		read := 0
		for o, err := range reader.FollowOutcomes(limited, cursor) {
			if err != nil {
				t.Fatalf("%d outcomes are missing: %v", len(want), err)
			}
			if !want[o.ID] || o.State != client.Succeeded || o.At.Before(last) {
				t.Errorf("outcome %+v comes twice, or is wrong", o)
			}
			delete(want, o.ID)
			cursor, last = o.Cursor, o.At
			read++
			if read == 3 || len(want) == 0 {
				break
			}
		}
	}
	short, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	for o, err := range reader.FollowOutcomes(short, cursor) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the last outcome: %+v, %v", o, err)
		}
	}
}

// breaking is a transport to the real server whose every second response is lost.
type breaking struct{ requests int }

// RoundTrip sends a request, and returns its response or an error.
func (b *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	b.requests++
	return (&lossy{lose: b.requests % 2}).RoundTrip(r)
}

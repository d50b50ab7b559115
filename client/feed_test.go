package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A feed is a transport that serves outcomes numbered from 1. The cursor of an outcome is its number. Every
// second read fails in another way. A read at the end of the feed waits, and then there are three more.
type feed struct {
	outcomes, reads int
	asked           []string
}

// RoundTrip answers one read.
func (f *feed) RoundTrip(r *http.Request) (*http.Response, error) {
	f.reads++
	f.asked = append(f.asked, r.URL.Query().Encode())
	status, text := 200, ""
	if f.reads%2 == 0 {
		switch f.reads / 2 % 5 {
		case 0:
			return nil, io.ErrUnexpectedEOF
		case 1:
			status = http.StatusServiceUnavailable
		case 2: // the response is cut off, after the server has read the outcomes
			text = "{"
			return &http.Response{StatusCode: 200, ContentLength: 9, Header: http.Header{},
				Body: io.NopCloser(io.MultiReader(strings.NewReader(text), cut{}))}, nil
		case 3:
			<-r.Context().Done()
			return nil, r.Context().Err()
		case 4:
			status = http.StatusInternalServerError
		}
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	if after == f.outcomes && status == 200 {
		select {
		case <-time.After(30 * time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		f.outcomes += 3
	}
	page := client.Page[client.Outcome]{Data: []client.Outcome{}, NextCursor: strconv.Itoa(after)}
	for n := after + 1; n <= min(f.outcomes, after+2); n++ {
		page.NextCursor = strconv.Itoa(n)
		page.Data = append(page.Data, client.Outcome{ID: fmt.Sprint("cb_", n), Cursor: page.NextCursor})
	}
	body, err := json.Marshal(page)
	return &http.Response{StatusCode: status, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(string(body)))}, err
}

// cut is the end of a connection.
type cut struct{}

func (cut) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestFollowOutcomes reads a feed that fails again and again. A reader that stops in the middle of a page and
// continues from its last cursor sees every outcome once, in order.
func TestFollowOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{outcomes: 7}
		c := newClient(t, client.Options{URL: "http://d.example", HTTPClient: &http.Client{Transport: f}})
		ctx, cancel := context.WithCancel(t.Context())
		cursor, want := "", 1
		for want <= 40 {
			for o, err := range c.FollowOutcomes(ctx, cursor) {
				if err != nil || o.ID != fmt.Sprint("cb_", want) {
					t.Fatalf("outcome %d is %s, %v", want, o.ID, err)
				}
				cursor = o.Cursor
				want++
				if want%5 == 0 {
					break
				}
			}
		}
		if first := f.asked[0]; first != "limit=500&wait=30s" {
			t.Errorf("the first read asks for %s", first)
		}
		// The context ends while the server waits.
		time.AfterFunc(200*time.Second, cancel)
		began := time.Now()
		for _, err := range c.FollowOutcomes(ctx, cursor) {
			if err != nil && (!errors.Is(err, context.Canceled) || time.Since(began) != 200*time.Second) {
				t.Errorf("the end of the context: %v after %s", err, time.Since(began))
			}
		}
	})
}

// TestFollowOutcomesEnds checks which errors end a feed at once, and that a server that does not wait is not
// asked all the time.
func TestFollowOutcomesEnds(t *testing.T) {
	for answer, want := range map[string]string{
		"401 unauthorized": "unauthorized", "422 invalid": "invalid",
		"200": "no next_cursor",
	} {
		s := &script{answers: []string{answer}}
		var errs []string
		for _, err := range s.client(t, client.Options{}).FollowOutcomes(t.Context(), "c") {
			errs = append(errs, err.Error())
		}
		if len(errs) != 1 || !strings.Contains(errs[0], want) || len(s.at) != 1 {
			t.Errorf("%s: %q after %d reads", answer, errs, len(s.at))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		reads := 0
		c := newClient(t, client.Options{URL: "http://d.example", HTTPClient: &http.Client{
			Transport: transport(func(*http.Request) (*http.Response, error) {
				reads++
				return &http.Response{StatusCode: 200, Header: http.Header{},
					Body: io.NopCloser(strings.NewReader(`{"data":[],"next_cursor":"c"}`))}, nil
			}),
		}})
		var errs []error
		for _, err := range c.FollowOutcomes(ctx, "") {
			errs = append(errs, err)
		}
		if !slices.Equal(errs, []error{context.DeadlineExceeded}) || reads > 11 {
			t.Errorf("%d reads in 10 s, then %v", reads, errs)
		}
	})
}

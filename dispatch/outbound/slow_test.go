package outbound

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestSlowAnswers checks attempts that time out or that the caller cancels, at every point. The clock is
// fake.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/slow.txt", func(line string) (text string) {
		words := append(strings.Split(line, " | "), "", "")
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRequest("http://shop.example/")
			var transport http.RoundTripper
			rule := words[2]
			switch words[0] {
			case "hangs":
				r.Timeout, rule = duration(words[1]), ""
				switch how, after, _ := strings.Cut(words[2], " "); how {
				case "end":
					time.AfterFunc(duration(after), cancel)
				case "deadline":
					ctx, cancel = context.WithTimeout(ctx, duration(after))
					defer cancel()
				}
				transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
			case "dies":
				transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					status, err := strconv.Atoi(words[1])
					body := dyingBody{r.Context(), cancel}
					return &http.Response{StatusCode: status, Header: http.Header{}, Body: body,
						ContentLength: 7}, err
				})
			}
			r.Success.Name = rule
			if strings.HasPrefix(rule, "{") {
				r.Poll, r.Success = true, store.Success{Rule: store.JSONText(rule)}
			}
			c := newTestClient(t, Options{Transport: transport})
			var dripping sync.WaitGroup
			if words[0] == "drips" {
				var receiver net.Conn
				c, receiver = newConnectedClient(t)
				dripping.Go(func() { drip(receiver, words[1], words[3]) })
				r.Timeout = time.Second
			}
			got := c.Send(ctx, r)
			dripping.Wait() // the attempt has closed the connection
			took := got.EndedAt.Sub(got.StartedAt)
			if got.Timings.Total != milliseconds(took) {
				t.Errorf("%s: took %v, and %v ms", line, took, got.Timings.Total)
			}
			text = fmt.Sprintf("%s\nafter %v", describe(t, got), took)
		})
		return text
	})
}

func duration(text string) time.Duration {
	d, _ := time.ParseDuration(text) // transcripts have valid durations only
	return d
}

// drip reads a request, sends the head at once and the text byte by byte, and then waits until the connection
// closes.
func drip(c net.Conn, head, text string) {
	readRequest(c)
	io.WriteString(c, head)
	for i := range text {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(30 * time.Millisecond)
	}
	io.Copy(io.Discard, c)
}

// A dyingBody cancels the context that it is read under.
type dyingBody struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (b dyingBody) Read([]byte) (int, error) {
	b.cancel()
	return 0, b.ctx.Err()
}

func (dyingBody) Close() error { return nil }

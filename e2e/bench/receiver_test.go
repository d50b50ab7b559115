package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// A ledger holds when each callback of a measurement arrived.
type ledger struct {
	at         []atomic.Int64 // Unix time in ns, 0: not yet
	arrived    atomic.Int64
	duplicates atomic.Int64
	strangers  atomic.Int64 // bodies that are not of this measurement
}

// note writes down one arrival.
func (l *ledger) note(body []byte, at int64) {
	n, ok := numberOf(body)
	switch {
	case !ok || n >= len(l.at):
		l.strangers.Add(1)
	case l.at[n].CompareAndSwap(0, at):
		l.arrived.Add(1)
	default:
		l.duplicates.Add(1)
	}
}

// receive is the receiver's process: it answers 200 to every POST and writes down when it came. The other paths are for
// the test: a new ledger, how many have arrived, and when.
func receive(s stage) error {
	var current atomic.Pointer[ledger]
	current.Store(&ledger{})
	server := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		l := current.Load()
		switch {
		case ctx.IsPost():
			l.note(ctx.PostBody(), time.Now().UnixNano())
		case string(ctx.Path()) == "/reset":
			current.Store(&ledger{at: make([]atomic.Int64, ctx.QueryArgs().GetUintOrZero("n"))})
		case string(ctx.Path()) == "/arrivals":
			b := make([]byte, 0, 8*len(l.at))
			for i := range l.at {
				b = binary.LittleEndian.AppendUint64(b, uint64(l.at[i].Load()))
			}
			ctx.SetBody(b)
		default:
			fmt.Fprintf(ctx, `{"arrived":%d,"duplicates":%d,"strangers":%d}`, l.arrived.Load(), l.duplicates.Load(), l.strangers.Load())
		}
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := s.say(sayReady, listener.Addr().String()); err != nil {
		return err
	}
	if err := s.awaitEnd(); err != nil {
		return err
	}
	if err := listener.Close(); err != nil { // connections end with the process
		return err
	}
	return <-served
}

// A receiver is that process as the test sees it.
type receiver struct {
	pid int
	url string
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	c := startChild(t, roleReceiver, childConfig{})
	return &receiver{pid: c.pid, url: "http://" + c.detail + "/"}
}

func (r *receiver) ask(ctx context.Context, path string) ([]byte, error) {
	return fetch(ctx, r.url+path)
}

// expect begins a measurement of n callbacks.
func (r *receiver) expect(t *testing.T, n int) {
	t.Helper()
	if _, err := r.ask(t.Context(), "reset?n="+strconv.Itoa(n)); err != nil {
		t.Fatalf("reset the receiver: %v", err)
	}
}

// arrivals waits until all n have arrived, each once, and returns when.
func (r *receiver) arrivals(ctx context.Context, n int, limit time.Duration) ([]time.Time, error) {
	var state struct{ Arrived, Duplicates, Strangers int }
	err := poll(ctx, "everything has arrived", limit, 10*time.Millisecond, func() (bool, error) {
		text, err := r.ask(ctx, "state")
		if err == nil {
			err = json.Unmarshal(text, &state)
		}
		if err == nil && state.Arrived < n {
			err = fmt.Errorf("%+v of %d", state, n)
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	raw, err := r.ask(ctx, "arrivals")
	if err != nil {
		return nil, err
	}
	if len(raw) != 8*n {
		return nil, fmt.Errorf("%d arrivals, want %d", len(raw)/8, n)
	}
	at := make([]time.Time, n)
	for i := range at {
		at[i] = time.Unix(0, int64(binary.LittleEndian.Uint64(raw[8*i:])))
	}
	return at, nil
}

// once fails when something arrived twice, or was not of the measurement. To be asked when nothing can arrive any more.
func (r *receiver) once(ctx context.Context) error {
	var state struct{ Arrived, Duplicates, Strangers int }
	text, err := r.ask(ctx, "state")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	if state.Duplicates > 0 || state.Strangers > 0 {
		return fmt.Errorf("arrived twice or unasked: %+v", state)
	}
	return nil
}

// fetch is a plain GET that must be answered 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s answered %d: %.200s", url, resp.StatusCode, body)
	}
	return body, err
}

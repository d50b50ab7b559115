package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sync/errgroup"
)

// processCommand makes this program one of the processes of a comparison. Its arguments are the role and the
// settings.
const processCommand = "process"

// Roles name processes by their function. Servers have the names of their programs.
const (
	roleFloor      = "floor"
	roleAsynq      = "asynq worker"
	roleRiver      = "river worker"
	roleDispatcher = "dispatcher"
	roleRedis      = "redis-server"
	rolePostgres   = "postgres"
)

// startTime is the timeout for a process to become ready.
const startTime = time.Minute

// processConfig are the settings of a process.
type processConfig struct {
	Receiver    string // URL of the receiver
	Concurrency int    // highest number of requests in flight
	First       int    // number of the first callback; only for the floor
	Count       int    // number of callbacks; only for the floor
	Store       string // URL of Redis or PostgreSQL; only for a queue's worker
}

// The words between a process and its parent, each on a line.
const (
	wordReady   = "ready"   // the process is ready
	wordGo      = "go"      // begin
	wordStop    = "stop"    // finish the running work, and take no more
	wordStopped = "stopped" // all work is finished
)

// runProcess runs a process of a comparison. It ends when its standard input ends.
func runProcess(args []string) error {
	var cfg processConfig
	if len(args) != 2 {
		return errors.New("a process needs a role and its settings")
	}
	if err := json.Unmarshal([]byte(args[1]), &cfg); err != nil {
		return err
	}
	words := conversation{bufio.NewReader(os.Stdin), os.Stdout}
	switch args[0] {
	case roleFloor:
		return sendInLoop(words, cfg)
	case roleAsynq:
		return workAsynq(words, cfg)
	case roleRiver:
		return workRiver(words, cfg)
	}
	return fmt.Errorf("no role %q", args[0])
}

// A conversation is one side of this exchange.
type conversation struct {
	in  *bufio.Reader
	out io.Writer
}

func (c conversation) say(word string) error {
	_, err := fmt.Fprintln(c.out, word)
	return err
}

func (c conversation) await(word string) error {
	line, err := c.in.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != word {
		err = fmt.Errorf("got %q, want %q", line, word)
	}
	return err
}

// awaitEnd waits until the other side closes the connection.
func (c conversation) awaitEnd() error {
	_, err := io.Copy(io.Discard, c.in)
	return err
}

// endWithParent makes the kernel kill a child when this process dies.
var endWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// start starts a process of the role and returns when it is ready. The process ends with the measurement.
func (r *run) start(role string, cfg processConfig) conversation {
	settings, err := json.Marshal(cfg)
	r.check(role, err)
	self, err := os.Executable()
	r.check(role, err)
	cmd := exec.Command(self, processCommand, role, string(settings))
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, endWithParent
	stdin, err := cmd.StdinPipe()
	r.check(role, err)
	stdout, err := cmd.StdoutPipe()
	r.check(role, err)
	r.check(role, cmd.Start())
	r.roles[cmd.Process.Pid] = role
	r.Cleanup(func() {
		hung := time.AfterFunc(startTime, func() { cmd.Process.Kill() })
		defer hung.Stop()
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			r.Errorf("end of the %s: %v", role, err)
		}
	})
	words := conversation{bufio.NewReader(stdout), stdin}
	hung := time.AfterFunc(startTime, func() { cmd.Process.Kill() }) // ends the wait for its words
	defer hung.Stop()
	r.check(role, words.await(wordReady))
	return words
}

// arrivalLimit is how long callbacks may take to arrive. A slower system counts as broken.
const arrivalLimit = 5 * time.Minute

// A bareLoop takes the place of a queue without storage: its worker sends the bodies in a loop. It is the
// floor, the cost of delivery with nothing but the HTTP client.
type bareLoop struct{}

func (bareLoop) worker() (role, store string)    { return roleFloor, "" }
func (bareLoop) fill(context.Context, int) error { return nil }
func (bareLoop) put(context.Context, int) error  { return nil }
func (bareLoop) done(context.Context, int) error { return nil }

// perSecond returns the arrivals a second, from start to the last arrival.
func perSecond(at []time.Time, start time.Time) float64 {
	return float64(len(at)) / slices.MaxFunc(at, time.Time.Compare).Sub(start).Seconds()
}

// sendInLoop is the process of the floor.
func sendInLoop(words conversation, cfg processConfig) error {
	return work(words, cfg, func(s *sender) (func() error, error) {
		return func() error { return nil }, parallel(cfg.Concurrency, cfg.Count, func() func(int) error {
			payload := newPayload()
			return func(n int) error {
				setNumber(payload, cfg.First+n)
				return s.send(context.Background(), cfg.First+n, payload)
			}
		})
	})
}

// A sender posts signed bodies with the HTTP client that the dispatcher uses. The queues' workers use it too.
type sender struct {
	client *retryablehttp.Client
	url    string
	secret []byte
}

func newSender(url string, concurrency int) *sender {
	c := retryablehttp.NewClient()
	c.Logger, c.RetryMax, c.ErrorHandler = nil, 0, retryablehttp.PassthroughErrorHandler
	c.HTTPClient = &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConns:        concurrency,
		MaxIdleConnsPerHost: concurrency,
		IdleConnTimeout:     90 * time.Second,
	}}
	return &sender{client: c, url: url, secret: bytes.Repeat([]byte("k"), 32)}
}

// send makes one request with the three headers of Standard Webhooks, and reads the whole response.
func (s *sender) send(ctx context.Context, n int, payload []byte) error {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, payload)
	if err != nil {
		return err
	}
	id, at := "cb_"+strconv.Itoa(n), strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, s.secret)
	for _, part := range [][]byte{[]byte(id), {'.'}, []byte(at), {'.'}, payload} {
		mac.Write(part) // never fails
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", at)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// warmUp opens the connections. The receiver counts these bodies as strangers of the previous measurement.
func (s *sender) warmUp(concurrency int) error {
	return parallel(concurrency, 10*concurrency, func() func(int) error {
		return func(n int) error { return s.send(context.Background(), n, []byte("warm")) }
	})
}

// parallel calls a function with 0 to n-1 from several goroutines, until one call fails. Each goroutine gets
// its own function from newDo.
func parallel(goroutines, n int, newDo func() func(int) error) error {
	var next atomic.Int64
	var group errgroup.Group
	for range goroutines {
		group.Go(func() error {
			do := newDo()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					return fmt.Errorf("number %d: %w", i, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

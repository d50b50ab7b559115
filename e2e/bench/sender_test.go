package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/sync/errgroup"
)

// A sender posts one signed body: the floor of the comparison in a loop, and what the queues' workers do.
type sender struct {
	client *retryablehttp.Client
	url    string
	secret []byte
}

// newSender keeps as many connections as there may be requests in flight.
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

// send makes one request, with the three headers of Standard Webhooks, and reads the answer to its end.
func (s *sender) send(ctx context.Context, id string, payload []byte) error {
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, s.url, payload)
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
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
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", resp.StatusCode)
	}
	return nil
}

// warmUp opens the connections. The receiver counts these bodies as strangers, and is reset afterwards.
func (s *sender) warmUp(concurrency int) error {
	var group errgroup.Group
	for range concurrency {
		group.Go(func() error {
			for range 10 {
				if err := s.send(context.Background(), "warm", []byte("warm")); err != nil {
					return fmt.Errorf("warm up: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// sendInLoop is the floor's process: so many goroutines send all the bodies, and nothing is kept anywhere.
func sendInLoop(s stage, cfg childConfig) error {
	sender := newSender(cfg.Receiver, cfg.Concurrency)
	if err := sender.warmUp(cfg.Concurrency); err != nil {
		return err
	}
	if err := s.say(sayReady); err != nil {
		return err
	}
	if err := s.await(sayGo); err != nil {
		return err
	}
	var next atomic.Int64
	var group errgroup.Group
	for range cfg.Concurrency {
		group.Go(func() error {
			payload := newPayload()
			for {
				n := int(next.Add(1)) - 1
				if n >= cfg.Count {
					return nil
				}
				setNumber(payload, n)
				if err := sender.send(context.Background(), "cb_"+strconv.Itoa(n), payload); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.awaitEnd()
}

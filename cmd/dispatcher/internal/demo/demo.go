// Package demo shows the dispatcher at work: a server, a flaky receiver, thirty payments and a poll. It then
// checks what arrived. It uses its own ports and directory and removes everything at the end.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// Command runs the demo.
type Command struct {
	Exit bool `help:"Exit when all callbacks have finished: with 0 if the results are as expected, else with 1."`
}

const (
	// demoPace is the time between two payments, so that a reader can follow.
	demoPace = 100 * time.Millisecond
	// demoLimit is the maximum time to wait until all callbacks are terminal.
	demoLimit = 60 * time.Second
	// demoPoll is the interval between two looks at the callbacks.
	demoPoll = 200 * time.Millisecond
	// demoLane is the lane of all payments: they have the same destination.
	demoLane = "demo-shop"
)

// Run runs the demo on its own ports and in its own directory, and checks the results.
func (cmd *Command) Run(ctx context.Context, c *console.Console) (err error) {
	dir, err := os.MkdirTemp("", "dispatcher-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	day := time.Now()
	payments, err := demoPayments(day)
	if err != nil {
		return err
	}
	payments = append(payments, demoRefund(day)...)
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the demo's receiver: %w", err)
	}
	settings, err := config.EmbeddedIn(dir)
	if err != nil {
		return err
	}
	quiet := &console.Console{In: c.In, Out: c.Out, Err: c.Err, Env: c.Env, Version: c.Version}
	srv, err := app.New(ctx, quiet, settings, app.NewLogger(c, settings))
	if err != nil {
		return errors.Join(err, receiver.Close())
	}
	d := &demo{c: c, srv: srv, payments: payments, receiver: receiver, live: newLive(c, len(payments))}
	d.shop = &shop{report: d.live.responded, payments: payments, inside: map[string]int{}}
	flags := remote.Flags{Server: "http://" + srv.Web.Addr().String(), Key: settings.AdminKey,
		Project: store.DefaultProject}
	d.cl, err = remote.New(c, flags)
	if err != nil {
		return errors.Join(err, receiver.Close(), srv.Close())
	}
	return errors.Join(d.run(ctx, cmd.Exit), srv.Close())
}

// demo is one run.
type demo struct {
	c        *console.Console
	srv      *app.App
	cl       *remote.Client
	shop     *shop
	receiver net.Listener
	// payments are the thirty payments, the poll and the poll's result.
	payments []payment
	live     *live
}

// run starts the server and the receiver and plays the demo. Unless exit is set, the server runs until
// Ctrl-C.
func (d *demo) run(ctx context.Context, exit bool) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	var parts sync.WaitGroup
	for name, run := range map[string]func(context.Context) error{
		"server":   d.srv.Run,
		"receiver": func(ctx context.Context) error { return listen.ServeUntilDone(ctx, d.receiver, d.shop) },
	} {
		parts.Go(func() {
			if err := run(life); err != nil {
				end(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	err := d.play(life, exit)
	if cause := context.Cause(life); err != nil && cause != nil {
		err = cause
	}
	end(nil)
	parts.Wait()
	if errors.Is(err, context.Canceled) && !exit {
		// Ctrl-C is the normal end of a demo without --exit.
		return nil
	}
	return err
}

// play sends the payments, watches them until they are terminal, and checks the results.
func (d *demo) play(ctx context.Context, exit bool) error {
	d.printIntro()
	if err := d.fetchSecret(ctx); err != nil {
		return err
	}
	d.live.start()
	err := d.sendAll(ctx)
	if err == nil {
		err = d.watch(ctx)
	}
	d.live.stop()
	if err != nil {
		return err
	}
	asExpected, err := d.check(ctx)
	if err != nil {
		return err
	}
	if exit {
		if !asExpected {
			return console.ErrPrinted
		}
		return nil
	}
	d.printHints()
	<-ctx.Done()
	return context.Cause(ctx)
}

// printIntro prints what is going to happen.
func (d *demo) printIntro() {
	tiers := schedule.Tiers(demoTiers)
	fmt.Fprintf(d.c.Out, `%s
A dispatcher with SQLite and an embedded index runs at %s.
Open the admin UI at %s and sign in with the key
%s
A flaky shop server runs at http://%s.
%d payment notifications are sent. A failed one is retried after %s
(the default policy retries after %s).
A poll asks a bank every %s for a refund until its status is final. Then the
shop gets the result.

`, d.c.Paint("dispatcher demo", console.Bold), d.cl.Base, d.pages(), d.srv.Settings.AdminKey,
		d.receiver.Addr(), len(d.payments)-2, tiers, schedule.Payment(), schedule.FormatDuration(pollTier))
}

// address is the URL of a payment at the receiver.
func (d *demo) address(p *payment) string {
	return fmt.Sprintf("http://%s%s", d.receiver.Addr(), p.path)
}

// fetchSecret reads the secret that signs for the shop, as an operator of a receiver does.
func (d *demo) fetchSecret(ctx context.Context) error {
	var answer struct {
		Secret string `json:"secret"`
	}
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/secret?lane="+demoLane, nil, &answer); err != nil {
		return fmt.Errorf("get the signing secret: %w", err)
	}
	secret, err := sign.ParseSecret(answer.Secret)
	if err != nil {
		return fmt.Errorf("parse the signing secret: %w", err)
	}
	d.shop.secret = secret
	return nil
}

// sendAll submits the payments one by one. The two of a pair are sent without a pause, so that they compete
// for their lock key.
func (d *demo) sendAll(ctx context.Context) error {
	for i := range d.payments {
		p := &d.payments[i]
		if p.scenario.result { // the end of the poll creates it
			continue
		}
		send := d.notify
		if p.scenario.poll {
			send = d.startPoll
		}
		cb, err := send(ctx, p)
		if err != nil {
			return fmt.Errorf("send %s: %w", p.name(), err)
		}
		p.id = cb.ID
		d.live.accepted(p)
		if p.lockKey != "" && p.topic != "payment.settled" {
			continue
		}
		console.Pause(ctx, demoPace)
		if _, err := d.observe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// notify submits a payment.
func (d *demo) notify(ctx context.Context, p *payment) (cb client.Callback, err error) {
	in := map[string]any{
		"url": d.address(p), "topic": p.topic, "ref": p.order, "lane": demoLane, "success": "body-success",
		"body": string(p.body), "content_type": "application/json",
		"policy": map[string]any{"tiers": tierTexts(p.scenario.tiers), "timeout": "5s"},
		"labels": map[string]string{"scenario": p.scenario.name},
	}
	if p.lockKey != "" {
		in["lock_key"] = p.lockKey
	}
	_, err = d.cl.Call(ctx, http.MethodPost, "/v1/callbacks", in, &cb)
	return cb, err
}

func tierTexts(tiers []time.Duration) []string {
	texts := make([]string, len(tiers))
	for i, t := range tiers {
		texts[i] = schedule.FormatDuration(t)
	}
	return texts
}

// watch looks at the callbacks until all are terminal or demoLimit has passed. Then check reports those that
// are not terminal.
func (d *demo) watch(ctx context.Context) error {
	deadline := time.Now().Add(demoLimit)
	for time.Now().Before(deadline) {
		terminal, err := d.observe(ctx)
		if err != nil {
			return err
		}
		if terminal == len(d.payments) {
			return nil
		}
		console.Pause(ctx, demoPoll)
	}
	return nil
}

// observe prints what changed since the last call, and returns the number of terminal callbacks.
func (d *demo) observe(ctx context.Context) (terminal int, err error) {
	byID, err := d.list(ctx)
	if err == nil {
		err = d.findResult(ctx, byID)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	for i := range d.payments {
		cb, ok := byID[d.payments[i].id]
		if !ok {
			continue
		}
		d.live.observed(&d.payments[i], &cb)
		if !cb.FinishedAt.IsZero() {
			terminal++
		}
	}
	return terminal, nil
}

// list returns all callbacks by id.
func (d *demo) list(ctx context.Context) (map[string]client.Callback, error) {
	var page client.Page[client.Callback]
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/callbacks?limit=500", nil, &page); err != nil {
		return nil, fmt.Errorf("list the callbacks: %w", err)
	}
	byID := make(map[string]client.Callback, len(page.Data))
	for _, cb := range page.Data {
		byID[cb.ID] = cb
	}
	return byID, nil
}

// printHints prints what the user can try while the server runs.
func (d *demo) printHints() {
	fmt.Fprintf(d.c.Out, `
The dispatcher keeps running. Open the admin UI at

  %s

and sign in with the key %s. In another terminal, with the built dispatcher
on your PATH, try:

  export DISPATCHER_SERVER=%s DISPATCHER_KEY=%s
  dispatcher callback list --state dead
  dispatcher callback get %s
  dispatcher poll get %s
  curl -H "Authorization: Bearer $DISPATCHER_KEY" $DISPATCHER_SERVER/v1/stats

Metrics are at http://%s/metrics. docs/guide/outbox.md shows how to create
callbacks in the transactions of your own PostgreSQL or MySQL.
Ctrl-C ends the demo and removes its data.
`, d.pages(), d.srv.Settings.AdminKey, d.cl.Base, d.srv.Settings.AdminKey, d.dead().id, d.poll().id,
		d.srv.Web.OpsAddr())
}

// pages is the URL of the admin UI.
func (d *demo) pages() string { return d.cl.Base + ui.Root + "/" }

// dead is the payment whose attempts are all meant to fail.
func (d *demo) dead() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.state == "dead" })
}

// poll is the poll of the bank.
func (d *demo) poll() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.poll })
}

// result is the callback with the poll's result.
func (d *demo) result() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.result })
}

// first returns the first payment of a kind, or nil. It returns a pointer, because other goroutines write to
// payments.
func first(payments []payment, is func(*payment) bool) *payment {
	for i := range payments {
		if p := &payments[i]; is(p) {
			return p
		}
	}
	return nil
}

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// The recipes of the documents are run from the document itself: every block as it stands, in one shell, but
// that the .example addresses are those of receivers here, and that durations are shorter.

// A recipe is one section of the document, and its blocks.
type recipe struct {
	title  string
	blocks []string
}

// readRecipes returns the sections of the document. What stands before the first one is of all of them.
func readRecipes(t *testing.T) (preamble string, list []recipe) {
	t.Helper()
	text, err := os.ReadFile("../../docs/guide/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, section := range strings.Split(string(text), "\n## ") {
		title, body, _ := strings.Cut(section, "\n")
		r := recipe{title: title}
		for _, part := range strings.Split(body, "\n```sh\n")[1:] {
			block, _, ended := strings.Cut(part, "\n```\n")
			if !ended {
				t.Fatalf("a block of %q does not end", title)
			}
			r.blocks = append(r.blocks, block)
		}
		if i == 0 {
			preamble = strings.Join(r.blocks, "\n")
			continue
		}
		list = append(list, r)
	}
	return preamble, list
}

// A shell runs blocks in one shell.
type docShell struct {
	t     *testing.T
	shop  *harness.Receiver
	stdin io.Writer
	out   *bufio.Scanner
	n     int
	// replace has pairs of what stands in the document and what is run.
	replace []string
}

// newDocShell starts a shell in a directory of its own.
func newDocShell(t *testing.T, p *harness.Process, r *harness.Receiver, preamble string) *docShell {
	t.Helper()
	shell := exec.Command("bash", "-eo", "pipefail")
	shell.Dir = t.TempDir()
	shell.Env = harness.Environment("DISPATCHER_SERVER="+p.Base, "DISPATCHER_KEY="+harness.AdminKey)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.Stderr = shell.Stdout
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), shell.Wait()); err != nil && !t.Failed() {
			t.Errorf("the shell: %v", err)
		}
	})
	c := &docShell{t: t, shop: r, stdin: in, out: bufio.NewScanner(out)}
	for _, name := range []string{"shop", "pay", "bank"} {
		c.replace = append(c.replace, "https://"+name+".example", r.URL+"/"+name)
	}
	c.run(preamble)
	return c
}

// scaled has durations in JSON that stand for waits; a minute becomes a tenth of a second. How long one
// attempt may take stays.
var scaled = regexp.MustCompile(`("timeout": )?"(\d+)([smh])"`)

const pace = 600

func (c *docShell) text(block string, more ...string) string {
	block = scaled.ReplaceAllStringFunc(block, func(found string) string {
		m := scaled.FindStringSubmatch(found)
		n, err := time.ParseDuration(m[2] + m[3])
		if err != nil || m[1] != "" {
			return found
		}
		return strconv.Quote((n / pace).String())
	})
	return strings.NewReplacer(append(more, c.replace...)...).Replace(block)
}

// run runs a block and returns what it printed. A block that fails ends the test.
func (c *docShell) run(block string, more ...string) string {
	c.t.Helper()
	c.n++
	mark := fmt.Sprintf("-- %d done", c.n)
	if _, err := fmt.Fprintf(c.stdin, "%s\necho '%s'\n", c.text(block, more...), mark); err != nil {
		c.t.Fatal(err)
	}
	var printed strings.Builder
	for c.out.Scan() {
		if c.out.Text() == mark {
			return printed.String()
		}
		printed.WriteString(c.out.Text() + "\n")
	}
	c.t.Fatalf("this block failed:\n%s\nit printed:\n%s", c.text(block, more...), printed.String())
	return ""
}

// values are the JSON values that a block printed, each as an object.
func (c *docShell) values(block string, more ...string) (list []map[string]any) {
	c.t.Helper()
	printed := c.run(block, more...)
	d := json.NewDecoder(strings.NewReader(printed))
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			c.t.Fatalf("it printed %s: %v", printed, err)
		}
		if m, ok := v.(map[string]any); ok {
			list = append(list, m)
		} else {
			list = append(list, map[string]any{"value": v})
		}
	}
}

// one is the single value that a block printed.
func (c *docShell) one(block string, more ...string) map[string]any {
	c.t.Helper()
	list := c.values(block, more...)
	if len(list) != 1 {
		c.t.Fatalf("it printed %d values: %v", len(list), list)
	}
	return list[0]
}

// heard are what arrived at a path.
func (c *docShell) heard(path string) (list []harness.Arrival) {
	for _, a := range c.shop.All() {
		if a.Path == path {
			list = append(list, a)
		}
	}
	return list
}

// awaitHeard waits for n requests at a path and returns them.
func (c *docShell) awaitHeard(path string, n int) (list []harness.Arrival) {
	c.t.Helper()
	harness.Eventually(c.t, 30*time.Second, "requests at "+path, func() error {
		if list = c.heard(path); len(list) < n {
			return fmt.Errorf("%d of %d", len(list), n)
		}
		return nil
	})
	return list
}

// results are the results of polls of a reference that arrived at a path.
func (c *docShell) results(path, ref string) (list []map[string]any) {
	for _, a := range c.heard(path) {
		var r map[string]any
		if err := json.Unmarshal(a.Body, &r); err != nil {
			c.t.Fatalf("a result %s: %v", a.Body, err)
		}
		if r["ref"] == ref {
			list = append(list, r)
		}
	}
	return list
}

// result waits for the one result of a reference.
func (c *docShell) result(path, ref string) map[string]any {
	c.t.Helper()
	var list []map[string]any
	harness.Eventually(c.t, 30*time.Second, "the result of "+ref, func() error {
		if list = c.results(path, ref); len(list) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if len(list) != 1 {
		c.t.Fatalf("%d results of %s: %v", len(list), ref, list)
	}
	return list[0]
}

// kitchen answers as the shop, the payment service and the bank of the recipes.
func kitchen(a *harness.Arrival) harness.Reply {
	switch {
	case a.Path == "/shop/notify" && a.Nth == 1:
		return harness.Reply{Status: 500, Body: "database is down"}
	case a.Path == "/bank/refunds/refund-9001":
		switch a.Nth {
		case 1:
			return harness.Reply{Status: 404, Body: `{"code": "RESOURCE_NOT_EXISTS"}`}
		case 2:
			return harness.Reply{Stream: func(w http.ResponseWriter) {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(429)
				io.WriteString(w, `{"code": "FREQUENCY_LIMITED"}`)
			}}
		case 3:
			return harness.Reply{Status: 200, Body: `{"status": "PROCESSING"}`}
		}
		return harness.Reply{Status: 200, Body: `{"status": "SUCCESS"}`}
	case a.Path == "/bank/orders/order-3003" && a.Nth > 1:
		return harness.Reply{Status: 200, Body: `{"trade_state": "SUCCESS", "amount": {"total": 1.0000e4}}`}
	case strings.HasPrefix(a.Path, "/bank/"):
		return harness.Reply{Status: 200, Body: `{"trade_state": "USERPAYING"}`}
	}
	return harness.Reply{Status: 200, Body: "success"}
}

func TestRecipes(t *testing.T) {
	mostlyWaits(t)
	preamble, list := readRecipes(t)
	runs := []func(*testing.T, *docShell, *harness.Process, recipe){
		recipeNotify, recipeTimer, recipeRefund, recipeOrder, recipeSweep,
	}
	if len(list) != len(runs) {
		t.Fatalf("the document has %d recipes, %d are run", len(list), len(runs))
	}
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	b.KeepApart("what a shell hands over is not counted")
	r := harness.NewReceiver(t, kitchen)
	p := harness.Serve(t, harness.Launch{On: b})
	for i, run := range runs {
		t.Run(list[i].title, func(t *testing.T) { run(t, newDocShell(t, p, r, preamble), p, list[i]) })
	}
}

func recipeNotify(t *testing.T, c *docShell, p *harness.Process, r recipe) {
	made := c.one(r.blocks[0])
	if tiers := fmt.Sprint(made["tiers"]); tiers != "[15s 3m 10m 30m 30m 1h 2h 6h 15h]" ||
		made["max_attempts"] != 10.0 {
		t.Errorf("accepted as %v", made)
	}
	if again := c.one(r.blocks[0]); again["id"] != made["id"] {
		t.Errorf("the same request once more became %v, the first was %v", again["id"], made["id"])
	}
	id := made["id"].(string)
	awaitAttempts(t, p, id, 1)
	explained := c.values(r.blocks[1])
	if len(explained) != 2 || explained[0]["summary"] == "" || explained[0]["next_at"] == nil ||
		explained[1]["class"] != "http_5xx" {
		t.Errorf("asked why: %v", explained)
	}
	first := awaitAttempts(t, p, id, 1)[0]
	// Both are shown in whole milliseconds; due times are rounded up.
	if wait := first.NextDueAt.Sub(first.EndedAt); wait < 15*time.Second ||
		wait > 15*time.Second+2*time.Millisecond {
		t.Errorf("the wait after the first attempt is %s", wait)
	}
	if retried := c.one(r.blocks[2]); retried["id"] != id {
		t.Errorf("retried %v", retried)
	}
	if cb := awaitTerminal(t, p, id); cb.State != "succeeded" {
		t.Errorf("after the retry it is %s", cb.State)
	}
}

func recipeTimer(t *testing.T, c *docShell, p *harness.Process, r recipe) {
	made := c.one(r.blocks[0])
	if canceled := c.one(r.blocks[1]); canceled["result"] != "canceled" || canceled["state"] != "canceled" {
		t.Errorf("paid in time: %v", canceled)
	}
	late := c.one(r.blocks[0], "order-1002", "order-2002")
	if cb := awaitTerminal(t, p, late["id"].(string)); cb.State != "succeeded" {
		t.Errorf("the one that is not canceled ends %s", cb.State)
	}
	if told := c.one(r.blocks[1], "order-1002", "order-2002"); told["result"] != "already_terminal" ||
		told["state"] != "succeeded" {
		t.Errorf("paid too late: %v", told)
	}
	if got := c.heard("/pay/orders/order-2002/close"); len(got) != 1 {
		t.Errorf("the second order was closed %d times", len(got))
	}
	if got := c.heard("/pay/orders/order-1002/close"); len(got) != 0 {
		t.Errorf("the order of %v was closed although it was paid", made["id"])
	}
}

func recipeRefund(t *testing.T, c *docShell, p *harness.Process, r recipe) {
	made := c.one(r.blocks[0])
	if made["kind"] != "poll" {
		t.Errorf("accepted as %v", made)
	}
	res := c.result("/shop/refunds", "refund-9001")
	if res["outcome"] != "success" || fmt.Sprint(res["context"]) != "map[amount:100.00 order:order-1001]" ||
		res["polls"] != 3.0 {
		t.Errorf("the result is %v", res)
	}
	if cb := awaitTerminal(t, p, made["id"].(string)); cb.State != "succeeded" || cb.Reason != "success" {
		t.Errorf("the poll is %s, %s", cb.State, cb.Reason)
	}
	asked := c.heard("/bank/refunds/refund-9001")
	if len(asked) != 4 || asked[0].Header.Get("Authorization") != "Bearer the-banks-token" ||
		asked[0].Header.Get("Webhook-Signature") != "" {
		t.Errorf("the bank was asked %d times, first with %v", len(asked), asked[0].Header)
	}
	if wait := asked[2].At.Sub(asked[1].End); wait < time.Second {
		t.Errorf("the bank asked for a second and got %s", wait)
	}
}

func recipeOrder(t *testing.T, c *docShell, p *harness.Process, r recipe) {
	made := c.one(r.blocks[0])
	if won := c.one(r.blocks[1]); won["result"] != "resolved" || won["state"] != "succeeded" ||
		won["reason"] != "resolved" {
		t.Errorf("the notice came first: %v", won)
	}
	res := c.result("/shop/orders", "order-1003")
	if res["outcome"] != "resolved" ||
		fmt.Sprint(res["data"]) != "map[trade_state:SUCCESS transaction:4200001]" || res["poll_id"] != made["id"] {
		t.Errorf("its result is %v", res)
	}
	c.one(r.blocks[0], "order-1003", "order-3003")
	if res := c.result("/shop/orders", "order-3003"); res["outcome"] != "success" || res["polls"] != 2.0 {
		t.Errorf("the poll came first: %v", res)
	}
	if lost := c.one(r.blocks[1], "order-1003", "order-3003"); lost["result"] != "already_terminal" ||
		lost["reason"] != "success" {
		t.Errorf("the notice came second: %v", lost)
	}
	if n := len(c.results("/shop/orders", "order-3003")); n != 1 {
		t.Errorf("%d results after both", n)
	}
}

func recipeSweep(t *testing.T, c *docShell, _ *harness.Process, r recipe) {
	made := c.one(r.blocks[0])
	next, err := time.Parse(time.RFC3339, fmt.Sprint(made["next_at"]))
	if err != nil || next.Minute() != 5 || time.Until(next) > time.Hour {
		t.Errorf("made %v: %v", made, err)
	}
	lines := c.values(r.blocks[1])
	got := make([]string, len(lines))
	for i, l := range lines {
		if got[i] = fmt.Sprint(l["value"]); l["value"] == nil {
			got[i] = fmt.Sprint(l["ref"], " ", l["replayed"])
		}
	}
	if want := "202 order-1004 <nil> 202 order-1005 <nil> 200 order-1004 true"; strings.Join(got, " ") != want {
		t.Errorf("the sweep printed %q, want %q", strings.Join(got, " "), want)
	}
	runs := c.values(r.blocks[2])
	if len(runs) != 2 || runs[1]["trigger"] != "manual" || runs[1]["callback_id"] != runs[0]["id"] {
		t.Errorf("the run by hand: %v", runs)
	}
	if a := c.awaitHeard("/pay/sweep", 1)[0]; string(a.Body) != `{"older_than": "1.5s"}` {
		t.Errorf("the sweep got %s", a.Body)
	}
}

// awaitAttempts waits for n attempts of a callback.
func awaitAttempts(t *testing.T, p *harness.Process, id string, n int) (list []client.Attempt) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "attempts of "+id, func() (err error) {
		if list, err = p.AttemptsOf(id); err == nil && len(list) < n {
			err = fmt.Errorf("%d of %d", len(list), n)
		}
		return err
	})
	return list
}

// awaitTerminal waits until a callback is terminal.
func awaitTerminal(t *testing.T, p *harness.Process, id string) (cb client.Callback) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, id+" is terminal", func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if cb, err = p.Callback(ctx, id); err == nil && cb.FinishedAt.IsZero() {
			err = fmt.Errorf("it is %s", cb.State)
		}
		return err
	})
	return cb
}

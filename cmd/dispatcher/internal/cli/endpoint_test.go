package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

const (
	endpointID  = "ep_01JD7Q2Z3K4M5N6P7R8S9TABCD"
	oneEndpoint = `{"id":"` + endpointID + `","external_id":"merchant/7","name":"Tea \u001b shop",
 "url":"https://shop.example/notify","url_override":"deny","topics":["payment.*"],"policy":{"tiers":["1s"]},
 "success":"body-success","signer":null,"headers":{"X-Shop":"7","X-Key":"***"},"rate":"50/s","concurrency":8,
 "enabled":true,"disabled_reason":null,"paused":false,"paused_until":null,"pause_reason":null,
 "lane":"` + endpointID + `","failing_since":null,"last_success_at":"2026-11-21T10:00:00.000Z","last_failure_at":null,
 "created_at":"2026-11-21T10:00:00.000Z","updated_at":"2026-11-21T10:00:00.000Z"}`
)

func TestEndpointCreate(t *testing.T) {
	t.Parallel()
	secret := cmdtest.WriteFile(t, "secret", "user:hunter22\n")
	program.Exchanges(t, map[string]string{"POST /v1/endpoints": cmdtest.With(t, oneEndpoint, `{"secret":"user:hunter22"}`)}, cmdtest.Exchange{
		Line: "endpoint create https://shop.example/notify --external-id merchant/7 --topic payment.*,refund.* --topic x " +
			"--success body-success --signer basic --profile standard --rate 50/s --concurrency 8 --url-override any " +
			"--secret @" + secret + " --secret-label l --disable --reason new",
		Args: []string{"--name", "Tea shop", "--policy", `{"tiers": ["1s"]}`, "-H", "X-Shop: 7", "-H", "X-Key: a, b"},
		Says: []string{endpointID + "  merchant/7  made\n", "\nuser:hunter22\n"},
		Call: "POST /v1/endpoints",
		Body: `{"concurrency":8,"enabled":false,"external_id":"merchant/7","headers":{"X-Key":"a, b","X-Shop":"7"},` +
			`"name":"Tea shop","policy":{"tiers":["1s"]},"profile":"standard","rate":"50/s","reason":"new",` +
			`"secret":"user:hunter22","secret_label":"l","signer":"basic","success":"body-success",` +
			`"topics":["payment.*","refund.*","x"],"url":"https://shop.example/notify","url_override":"any"}`,
	})
	// Of a key pair the receiver's part is the public key; the private one is not printed.
	for _, use := range []string{sign.UseEd25519, sign.UseRSA} {
		key := cmdtest.SigningKey(t, use, 0)
		written, err := json.Marshal(sign.FormatSecretFor(use, key))
		if err != nil {
			t.Fatal(err)
		}
		address, _ := cmdtest.FakeServer(t, map[string]string{"POST /v1/endpoints": cmdtest.With(t, oneEndpoint, `{"secret":`+string(written)+`}`)})
		term := program.At(address)
		term.Ends(t, console.ExitOK, "endpoint", "create", "https://shop.example/")
		got := strings.TrimSpace(term.Stdout.String())
		public := strings.TrimSpace(cmdtest.ReceiversForm(t, use, key))
		if !strings.HasSuffix(got, public) || strings.Contains(got, "PRIVATE") || strings.Contains(got, "whsk_") {
			t.Errorf("%s: said %s", use, got)
		}
	}
}

func TestEndpointList(t *testing.T) {
	t.Parallel()
	for change, want := range map[string]string{
		`{"enabled":false,"disabled_reason":"gone"}`: "disabled: gone",
		`{"paused":true}`: "paused ",
		`{"paused":true,"paused_until":"2099-01-01T00:00:00.000Z"}`:                      "paused for ",
		`{"failing_since":"2026-11-21T10:00:00.000Z"}`:                                   "failing since ",
		`{"last_success_at":null}`:                                                       "not sent to yet",
		`{"last_success_at":"2026-11-21T10:00:00.000Z","headers":{},"concurrency":null}`: "ok, ",
	} {
		program.Exchanges(t, map[string]string{"GET /v1/endpoints": cmdtest.ListOf(cmdtest.With(t, oneEndpoint, change))}, cmdtest.Exchange{
			Line: "endpoint list --search tea --topic t --held --failing", Says: []string{want, `Tea \x1b shop`},
			Call: "GET /v1/endpoints?failing=true&held=true&limit=50&search=tea&topic=t",
		})
	}
}

// Each command takes an endpoint's id, or looks one up by its external id first.
func TestEndpointsAreNamedEitherWay(t *testing.T) {
	t.Parallel()
	const one = "/v1/endpoints/" + endpointID
	paused := cmdtest.With(t, oneEndpoint, `{"paused":true,"paused_until":"2099-01-01T00:00:00.000Z","pause_reason":"r"}`)
	answers := map[string]string{
		"GET /v1/endpoints/by-external-id/merchant/7": oneEndpoint, "GET " + one: oneEndpoint,
		"PATCH " + one: oneEndpoint, "DELETE " + one: "",
		"POST " + one + "/pause": paused, "POST " + one + "/resume": oneEndpoint, "POST " + one + "/test": cmdtest.OneCallback,
		"GET " + one + "/secret":         `{"use":"ed25519","secret":"whsk_private","public":"whpk_public"}`,
		"POST " + one + "/rotate_secret": `{"use":"hmac","secret":"whsec_new","public":null,"previous_signs_until":"2099-01-01T00:00:00.000Z"}`,
	}
	for _, e := range []cmdtest.Exchange{
		{Line: "get NAME", Says: []string{`header       X-Key: ***`}},
		{Line: "get NAME --json", Says: []string{`"external_id": "merchant/7"`}},
		{Line: "set NAME --url https://h/ --clear policy,topic --clear external_id --enable --reason r -H", Args: []string{"A: b"},
			Says: []string{"changed"}, Call: "PATCH " + one,
			Body: `{"enabled":true,"external_id":null,"headers":{"A":"b"},"policy":null,"reason":"r","topics":null,"url":"https://h/"}`},
		{Line: "delete NAME --reason r", Says: []string{"is removed"}, Call: "DELETE " + one, Body: `{"reason":"r"}`},
		{Line: "pause NAME --for 1h --reason r", Says: []string{"is paused until 2099-01-01"},
			Call: "POST " + one + "/pause", Body: `{"for":"1h","reason":"r"}`},
		{Line: "resume NAME", Says: []string{"goes on"}, Call: "POST " + one + "/resume"},
		{Line: "test NAME", Says: []string{"is attempted once"}, Call: "POST " + one + "/test"},
		{Line: "secret NAME", Says: []string{"whpk_public\n"}, Call: "GET " + one + "/secret"},
		{Line: "secret NAME --private", Says: []string{"whsk_private\n"}, Call: "GET " + one + "/secret"},
		{Line: "rotate-secret NAME --secret s --label l --overlap 1h", Says: []string{"whsec_new\n"},
			Warns: []string{"has a new secret; where the signer has room for two, the old one signs beside it until 2099"},
			Call:  "POST " + one + "/rotate_secret", Body: `{"label":"l","overlap":"1h","secret":"s"}`},
	} {
		line := "endpoint " + e.Line
		unknown := cmdtest.Exchange{
			Line: strings.Replace(line, "NAME", "merchant/8", 1), Args: e.Args, Code: console.ExitFailed,
			Warns: []string{`dispatcher: no endpoint has the id or external id "merchant/8" (404 not_found)` + "\n"},
			Call:  "GET /v1/endpoints/by-external-id/merchant%2F8",
		}
		byID, byName := e, e
		byID.Line = strings.Replace(line, "NAME", endpointID, 1)
		byName.Line = strings.Replace(line, "NAME", "merchant/7", 1)
		program.Exchanges(t, answers, byID, byName, unknown)
	}
	// Resuming does not enable what its receiver has disabled by 410: that is said, with what does.
	disabled := cmdtest.With(t, oneEndpoint, `{"enabled":false,"disabled_reason":"gone"}`)
	program.Exchanges(t, map[string]string{"POST " + one + "/resume": disabled},
		cmdtest.Exchange{Line: "endpoint resume " + endpointID, Says: []string{"disabled (gone)", "--enable"}})
}

// testedEndpoint answers a test of an endpoint: the callback is open for some looks at it, then it is as it ends.
func testedEndpoint(t *testing.T, openFor int64, ended string) string {
	t.Helper()
	var looks atomic.Int64
	open := cmdtest.With(t, cmdtest.OneCallback, `{"attempt_count":0,"last_status":null,"last_class":null}`)
	return cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		answer := open
		switch r.Method + " " + r.URL.Path {
		case "POST /v1/endpoints/" + endpointID + "/test":
		case "GET /v1/callbacks/" + cmdtest.OneID:
			if looks.Add(1) > openFor {
				answer = ended
			}
		case "GET /v1/callbacks/" + cmdtest.OneID + "/attempts":
			answer = cmdtest.ListOf(cmdtest.OneAttempt)
		case "GET /v1/callbacks/" + cmdtest.OneID + "/explain":
			answer = `{"summary":"Its endpoint is paused.","next_at":null,"blocking":[{"code":"endpoint_paused","since":null,
 "until":null,"detail":"The endpoint is paused: x","cure":"POST /v1/endpoints/` + endpointID + `/resume"}]}`
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL.Path)
		}
		cmdtest.Respond(t, w, answer)
	})
}

func TestEndpointTestWaits(t *testing.T) {
	t.Parallel()
	dead := cmdtest.With(t, cmdtest.OneCallback, `{"state":"dead","reason":"exhausted","finished_at":"2026-11-21T10:00:01.000Z"}`)
	well := cmdtest.With(t, cmdtest.OneCallback, `{"state":"succeeded","reason":null,"finished_at":"2026-11-21T10:00:01.000Z"}`)
	for _, tc := range []struct {
		ended       string
		openFor     int64
		args        []string
		code        int
		says, warns []string
	}{
		{ended: dead, openFor: 3, code: console.ExitFailed,
			says: []string{cmdtest.OneID + "  dead: exhausted\n  POST https://shop.example/notify  500 http_5xx: \\x1b[31mboom"}},
		{ended: well, says: []string{cmdtest.OneID + "  succeeded\n"}},
		{ended: well, openFor: 1, args: []string{"--json"}, says: []string{`"attempts": [`}},
		{ended: dead, openFor: 1, args: []string{"--json"}, code: console.ExitFailed, says: []string{`"attempts": [`}},
		// What something holds is not waited for without end; what holds it is said, and how that is ended.
		{openFor: 1 << 30, args: []string{"--timeout", "100ms"}, code: console.ExitFailed, warns: []string{
			"Its endpoint is paused.", "cure: dispatcher endpoint resume " + endpointID, "has not ended within 100ms",
		}},
	} {
		term := program.At(testedEndpoint(t, tc.openFor, tc.ended))
		term.Ends(t, tc.code, append([]string{"endpoint", "test", endpointID, "--wait"}, tc.args...)...)
		cmdtest.Says(t, term.Stdout.String(), tc.says...)
		cmdtest.Says(t, term.Stderr.String(), tc.warns...)
	}
}

// Lines go in batches; one that is refused, by the server or before, stops no other.
func TestEndpointPut(t *testing.T) {
	t.Parallel()
	var batches [][]map[string]any
	address := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Endpoints []map[string]any `json:"endpoints"`
			Reason    string           `json:"reason"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Reason != "load" || r.URL.Path != "/v1/endpoints/batch" {
			t.Errorf("%s: %+v %v", r.URL.Path, in.Reason, err)
		}
		batches = append(batches, in.Endpoints) // one after the other
		var results []string
		for _, ep := range in.Endpoints {
			switch id, _ := ep["external_id"].(string); {
			case strings.HasSuffix(id, "7"):
				results = append(results, `{"status":200,"endpoint":{}}`)
			case id == "bad":
				results = append(results, `{"status":422,"problem":{"status":422,"detail":"invalid request: see errors (url)",
 "code":"invalid","errors":[{"field":"url","message":"is wrong"}]}}`)
			default:
				results = append(results, `{"status":201,"endpoint":{}}`)
			}
		}
		w.WriteHeader(http.StatusMultiStatus)
		cmdtest.Respond(t, w, `{"results":[`+strings.Join(results, ",")+`]}`)
	})
	var b strings.Builder
	b.WriteString("\n[1]\n{\"external_id\": \"bad\"\n{\"external_id\": \"bad\"}\n")
	for i := range 1500 {
		fmt.Fprintf(&b, `{"external_id": "m%d", "url": "https://shop.example/%d"}`+"\n", i, i)
	}
	term := program.At(address)
	term.Ends(t, console.ExitFailed, "endpoint", "put", cmdtest.WriteFile(t, "endpoints.ndjson", b.String()), "--reason", "load")
	if got := term.Stdout.String(); got != "1503 endpoints: 1350 made, 150 replaced, 3 refused\n" {
		t.Errorf("said %s", got)
	}
	want := "line 2: the line is not a JSON object (422 invalid)\n" +
		"line 3: the line is not JSON: unexpected end of JSON input at byte 21 (400 bad_json)\n" +
		"line 4: invalid request (422 invalid): url is wrong\n"
	if got := term.Stderr.String(); got != want {
		t.Errorf("said %q", got)
	}
	if len(batches) != 2 || len(batches[0]) != 1000 || len(batches[1]) != 501 {
		t.Errorf("made %d batches", len(batches))
	}
	term = program.At(address)
	term.In = strings.NewReader(`{"external_id":"m7"}`)
	term.Ends(t, console.ExitOK, "endpoint", "put", "-", "--json", "--reason", "load")
	cmdtest.Says(t, term.Stdout.String(), `"replaced": 1`)
	term = program.At(cmdtest.Answering(t, 403, `{"title":"Forbidden","status":403,"detail":"the key may not do this","code":"forbidden"}`))
	term.In = strings.NewReader(`{"external_id":"m7"}`)
	term.Ends(t, console.ExitFailed, "endpoint", "put", "-")
	cmdtest.Says(t, term.Stderr.String(), "dispatcher: lines 1 to 1: the key may not do this (403 forbidden)")
}

package smoke

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// good is a submission that is accepted; each case spoils one field of it.
func good() harness.Submission {
	return harness.Submission{"url": "http://127.0.0.1:9/notify", "payload": harness.Submission{"paid": 1}, "delay": "1h"}
}

// refused are the fields of a callback and values that they cannot mean. field is how the answer names it, or what it
// begins with for fields that have parts. A nil value in set removes the field.
var refused = []struct {
	name, field string
	set         harness.Submission
}{
	{"no address", "url", harness.Submission{"url": nil}},
	{"address is a number", "url", harness.Submission{"url": 7}},
	{"relative address", "url", harness.Submission{"url": "/notify"}},
	{"other scheme", "url", harness.Submission{"url": "ftp://shop.example/notify"}},
	{"no host", "url", harness.Submission{"url": "https:///notify"}},
	{"credentials in the address", "url", harness.Submission{"url": "https://user:pw@shop.example/"}},
	{"port zero", "url", harness.Submission{"url": "https://shop.example:0/"}},
	{"port too large", "url", harness.Submission{"url": "https://shop.example:99999/"}},
	{"private address", "url", harness.Submission{"url": "http://10.1.2.3/"}},
	{"metadata address", "url", harness.Submission{"url": "http://169.254.169.254/latest"}},
	{"control character in the address", "url", harness.Submission{"url": "https://shop.example/\u0001"}},
	{"no such endpoint", "endpoint", harness.Submission{"endpoint": "ep_01HZZZZZZZZZZZZZZZZZZZZZZZ"}},
	{"method with a space", "method", harness.Submission{"method": "PO ST"}},
	{"method is a list", "method", harness.Submission{"method": []string{"POST"}}},
	{"header name", "headers", harness.Submission{"headers": harness.Submission{"X A": "1"}}},
	{"header value with a line break", "headers", harness.Submission{"headers": harness.Submission{"X-A": "1\r\nX-B: 2"}}},
	{"header Host", "headers", harness.Submission{"headers": harness.Submission{"Host": "other.example"}}},
	{"header of the connection", "headers", harness.Submission{"headers": harness.Submission{"Connection": "close"}}},
	{"header of the length", "headers", harness.Submission{"headers": harness.Submission{"Content-Length": "1"}}},
	{"header of the signature", "headers", harness.Submission{"headers": harness.Submission{"webhook-id": "x"}}},
	{"headers too large", "headers", harness.Submission{"headers": harness.Submission{"X-Large": strings.Repeat("x", 17<<10)}}},
	{"headers are a text", "headers", harness.Submission{"headers": "X-A: 1"}},
	{"topic with a control character", "topic", harness.Submission{"topic": "a\nb"}},
	{"reference too long", "ref", harness.Submission{"ref": strings.Repeat("r", 257)}},
	{"reference with NUL", "ref", harness.Submission{"ref": "a\u0000b"}},
	{"reference is a number", "ref", harness.Submission{"ref": 12}},
	{"no body for POST", "payload", harness.Submission{"payload": nil}},
	{"two bodies", "payload", harness.Submission{"body": "text"}},
	{"broken base64", "body_base64", harness.Submission{"payload": nil, "body_base64": "%%%"}},
	{"policy unknown", "policy", harness.Submission{"policy": "no-such-policy"}},
	{"policy is a number", "policy", harness.Submission{"policy": 3}},
	{"policy with an unknown key", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"1s"}, "tires": 1}}},
	{"tier is negative", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"-1s"}}}},
	{"tier is no duration", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"soon"}}}},
	{"tier is too long", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"401d"}}}},
	{"too many tiers", "policy", harness.Submission{"policy": harness.Submission{"tiers": strings.Split(strings.Repeat("1s,", 100)+"1s", ",")}}},
	{"timeout too short", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"1s"}, "timeout": "99ms"}}},
	{"timeout too long", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"1s"}, "timeout": "61s"}}},
	{"jitter is negative", "policy", harness.Submission{"policy": harness.Submission{"tiers": []string{"1s"}, "jitter": -0.1}}},
	{"success rule unknown", "success", harness.Submission{"success": "no-such-rule"}},
	{"due time is no time", "due_at", harness.Submission{"delay": nil, "due_at": "tomorrow"}},
	{"due time too far away", "due_at", harness.Submission{"delay": nil, "due_at": "2999-01-01T00:00:00Z"}},
	{"due time and delay", "delay", harness.Submission{"due_at": "2026-01-01T00:00:00Z"}},
	{"delay is negative", "delay", harness.Submission{"delay": "-1s"}},
	{"delay too long", "delay", harness.Submission{"delay": "401d"}},
	{"delay is a number", "delay", harness.Submission{"delay": 5}},
	{"expiry is negative", "expires_in", harness.Submission{"expires_in": "-1s"}},
	{"lock key too long", "lock_key", harness.Submission{"lock_key": strings.Repeat("k", 257)}},
	{"order unknown", "order", harness.Submission{"lock_key": "k", "order": "loose"}},
	{"order without a lock key", "order", harness.Submission{"order": "strict"}},
	{"lane too long", "lane", harness.Submission{"lane": strings.Repeat("l", 129)}},
	{"superseding without a version", "version", harness.Submission{"supersede": true, "ref": "r", "topic": "t"}},
	{"superseding without a reference", "ref", harness.Submission{"supersede": true, "ref": nil, "topic": "t", "version": 1}},
	{"superseding without a topic", "topic", harness.Submission{"supersede": true, "ref": "r", "topic": nil, "version": 1}},
	{"version is a fraction", "version", harness.Submission{"version": 1.5}},
	{"first attempt is zero", "start_attempt", harness.Submission{"start_attempt": 0}},
	{"first attempt after the last", "start_attempt", harness.Submission{"start_attempt": 99}},
	{"label value too long", "labels", harness.Submission{"labels": harness.Submission{"channel": strings.Repeat("v", 257)}}},
	{"label name too long", "labels", harness.Submission{"labels": harness.Submission{strings.Repeat("n", 65): "v"}}},
	{"too many labels", "labels", harness.Submission{"labels": manyLabels(21)}},
	{"label is a number", "labels", harness.Submission{"labels": harness.Submission{"channel": 1}}},
	{"unknown field", "state", harness.Submission{"state": "succeeded"}},
	{"field in other letters", "URL", harness.Submission{"URL": "https://shop.example/"}},
}

func manyLabels(n int) harness.Submission {
	labels := harness.Submission{}
	for i := range n {
		labels[fmt.Sprint("label-", i)] = "v"
	}
	return labels
}

// spoilt is good with a case's fields.
func spoilt(set harness.Submission) harness.Submission {
	s := good()
	for name, value := range set {
		if value == nil {
			delete(s, name)
		} else {
			s[name] = value
		}
	}
	return s
}

// Every field refuses what it cannot mean: 422, its name and a sentence; alone and in a batch.
func TestEveryFieldRefusesWhatItCannotMean(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	for _, c := range refused {
		t.Run(c.name, func(t *testing.T) {
			body, err := json.Marshal(spoilt(c.set))
			if err != nil {
				t.Fatal(err)
			}
			got := post(t, p, "/v1/callbacks", body)
			checkProblem(t, got, http.StatusUnprocessableEntity, c.field)
		})
	}
	t.Run("the good one of a batch is accepted beside bad ones", func(t *testing.T) {
		batch := []harness.Submission{good()}
		for _, c := range refused {
			batch = append(batch, spoilt(c.set))
		}
		body, err := json.Marshal(harness.Submission{"callbacks": batch})
		if err != nil {
			t.Fatal(err)
		}
		got := post(t, p, "/v1/callbacks/batch", body)
		var reply struct {
			Results []struct {
				Status  int             `json:"status"`
				Problem harness.Problem `json:"problem"`
			} `json:"results"`
		}
		if err := got.Decode(&reply); err != nil || got.Status != http.StatusMultiStatus || len(reply.Results) != len(batch) {
			t.Fatalf("answered %d with %d results: %v", got.Status, len(reply.Results), err)
		}
		for i, r := range reply.Results {
			want := http.StatusUnprocessableEntity
			if i == 0 {
				want = http.StatusAccepted
			}
			if r.Status != want {
				t.Errorf("element %d was answered %d, want %d: %+v", i, r.Status, want, r.Problem)
			}
		}
	})
	rows, err := p.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1 {
		t.Errorf("%d callbacks were accepted, want the good one alone", len(rows))
	}
}

func post(t *testing.T, p *harness.Process, path string, body []byte) harness.Answer {
	t.Helper()
	got, err := p.Raw(t.Context(), http.MethodPost, path, body, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// checkProblem looks at an answer that refuses. An empty field means that none need be named.
func checkProblem(t *testing.T, got harness.Answer, status int, field string) {
	t.Helper()
	var pb harness.Problem
	if err := got.Decode(&pb); err != nil {
		t.Errorf("%v", err)
		return
	}
	if got.Status != status || pb.Status != status {
		t.Errorf("answered %d (status in the body: %d), want %d: %.300s", got.Status, pb.Status, status, got.Body)
	}
	if ct := got.Header.Get("Content-Type"); !strings.HasPrefix(ct, "application/problem+json") {
		t.Errorf("content type %q", ct)
	}
	if pb.Code == "" || pb.Title == "" {
		t.Errorf("the problem has no code or title: %.300s", got.Body)
	}
	if field == "" {
		return
	}
	for _, e := range pb.Errors {
		if (e.Field == field || strings.HasPrefix(e.Field, field+".") || strings.HasPrefix(e.Field, field+"[")) && len(e.Message) > 5 {
			return
		}
	}
	t.Errorf("no error names %q with a sentence: %.400s", field, got.Body)
}

// What is not even a question gets the status that says so.
func TestBadRequestsGetTheirStatus(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	get, send := http.MethodGet, http.MethodPost
	unknown := "cb_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field                    string
	}{
		{"broken JSON", send, "/v1/callbacks", `{"url": `, 400, ""},
		{"no JSON at all", send, "/v1/callbacks", `hello`, 400, ""},
		{"empty body", send, "/v1/callbacks", ``, 400, ""},
		{"two documents", send, "/v1/callbacks", `{"url":"https://shop.example"} {}`, 400, ""},
		{"a list", send, "/v1/callbacks", `[]`, 422, ""},
		{"the same key twice", send, "/v1/callbacks", `{"url":"https://shop.example","payload":1,"ref":"a","ref":"b"}`, 422, "ref"},
		{"invalid UTF-8", send, "/v1/callbacks", "{\"url\":\"https://shop.example\",\"payload\":1,\"ref\":\"\xff\"}", 422, "ref"},
		{"unknown id", get, "/v1/callbacks/" + unknown, ``, 404, ""},
		{"unknown id, attempts", get, "/v1/callbacks/" + unknown + "/attempts", ``, 404, ""},
		{"unknown id, payload", get, "/v1/callbacks/" + unknown + "/payload", ``, 404, ""},
		{"unknown id, cancel", send, "/v1/callbacks/" + unknown + "/cancel", `{}`, 404, ""},
		{"unknown id, retry", send, "/v1/callbacks/" + unknown + "/retry", `{}`, 404, ""},
		{"unknown id, reschedule", send, "/v1/callbacks/" + unknown + "/reschedule", `{"delay":"1s"}`, 404, ""},
		{"an id of another shape", get, "/v1/callbacks/cb_%27%20or%201=1--", ``, 404, ""},
		{"unknown route", get, "/v1/no-such-thing", ``, 404, ""},
		{"limit too large", get, "/v1/callbacks?limit=501", ``, 422, "limit"},
		{"limit is no number", get, "/v1/callbacks?limit=many", ``, 422, "limit"},
		{"unknown filter", get, "/v1/callbacks?stat=dead", ``, 422, "stat"},
		{"unknown state", get, "/v1/callbacks?state=lost", ``, 422, "state"},
		{"broken cursor", get, "/v1/callbacks?cursor=zzz", ``, 422, "cursor"},
		{"batch of none", send, "/v1/callbacks/batch", `{"callbacks":[]}`, 422, "callbacks"},
		{"batch with an unknown field", send, "/v1/callbacks/batch", `{"callbacks":[],"atomic":true}`, 422, "atomic"},
		{"cancel without a reference", send, "/v1/callbacks/cancel", `{"topic":"t"}`, 422, "ref"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := p.Raw(t.Context(), c.method, c.path, []byte(c.body), nil)
			if err != nil {
				t.Fatal(err)
			}
			checkProblem(t, got, c.status, c.field)
		})
	}
	for name, authorization := range map[string]string{
		"no key": "", "wrong key": "Bearer nonsense", "part of the key": "Bearer " + harness.AdminKey[:10], "other scheme": "Basic " + harness.AdminKey,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.Raw(t.Context(), get, "/v1/callbacks", nil, http.Header{"Authorization": {authorization}})
			if err != nil {
				t.Fatal(err)
			}
			checkProblem(t, got, http.StatusUnauthorized, "")
		})
	}
}

// An endless is a body that would go on for ever; it counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, bytes.Repeat([]byte(" "), len(b))), nil
}

// A body over the limit is refused before it has been read.
func TestBodiesOverTheLimitAreRefusedUnread(t *testing.T) {
	harness.BlackBox(t)
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	t.Run("announced", func(t *testing.T) {
		// Expect: 100-continue sends the body only if the server wants it.
		body := &endless{}
		got := upload(t, p, "/v1/callbacks", body, 64<<20)
		checkProblem(t, got, http.StatusRequestEntityTooLarge, "")
		if body.read > 2<<20 {
			t.Errorf("%d bytes were taken of a body that is over the limit by its own word", body.read)
		}
	})
	t.Run("chunked", func(t *testing.T) {
		got := upload(t, p, "/v1/callbacks", io.LimitReader(&endless{}, 513<<10), -1)
		checkProblem(t, got, http.StatusRequestEntityTooLarge, "")
	})
	t.Run("decoded body", func(t *testing.T) {
		body, err := json.Marshal(spoilt(harness.Submission{"payload": strings.Repeat("x", 256<<10)}))
		if err != nil {
			t.Fatal(err)
		}
		checkProblem(t, post(t, p, "/v1/callbacks", body), http.StatusRequestEntityTooLarge, "")
	})
	t.Run("the largest body is accepted", func(t *testing.T) {
		body, err := json.Marshal(spoilt(harness.Submission{"payload": strings.Repeat("x", 256<<10-2)}))
		if err != nil {
			t.Fatal(err)
		}
		if got := post(t, p, "/v1/callbacks", body); got.Status != http.StatusAccepted {
			t.Errorf("answered %d: %.300s", got.Status, got.Body)
		}
	})
}

func upload(t *testing.T, p *harness.Process, path string, body io.Reader, length int64) harness.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.Base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	maps.Copy(req.Header, http.Header{"Authorization": {"Bearer " + p.Key}, "Content-Type": {"application/json"}})
	if length > 0 {
		req.Header.Set("Expect", "100-continue")
	}
	transport := &http.Transport{ExpectContinueTimeout: 20 * time.Second}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("the answer did not come: %v", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return harness.Answer{Status: resp.StatusCode, Header: resp.Header, Body: text}
}

// The same key with the same bytes is the same callback; with other bytes it is refused.
func TestIdempotencyKeyIsKept(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		p := harness.Serve(t, harness.Launch{On: b})
		body, err := json.Marshal(spoilt(harness.Submission{"idempotency_key": "key-1"}))
		if err != nil {
			t.Fatal(err)
		}
		var first, again harness.Callback
		if err := post(t, p, "/v1/callbacks", body).Decode(&first); err != nil {
			t.Fatal(err)
		}
		got := post(t, p, "/v1/callbacks", body)
		if err := got.Decode(&again); err != nil {
			t.Fatal(err)
		}
		if got.Status != http.StatusOK || again.ID != first.ID || !again.Replayed {
			t.Errorf("the replay was answered %d with %s, replayed %v; want 200, %s, true", got.Status, again.ID, again.Replayed, first.ID)
		}
		other, err := json.Marshal(spoilt(harness.Submission{"idempotency_key": "key-1", "ref": "other"}))
		if err != nil {
			t.Fatal(err)
		}
		checkProblem(t, post(t, p, "/v1/callbacks", other), http.StatusUnprocessableEntity, "")
	})
}

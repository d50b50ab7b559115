package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// sender makes a key of the scope send and returns the header for it.
func (f face) sender(t *testing.T) []string {
	t.Helper()
	key := f.ask(t, 201, "POST", "/v1/keys", `{"name":"send","scopes":["send"]}`)["key"].(string)
	return []string{"Authorization", "Bearer " + key}
}

// In a lane of its own a signer cannot make the signature of another: each has a secret of its own.
func TestNoSignerSignsForAnother(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const lane = "merchant-7"
	body := "msg_1.1700000000.{}"
	id := h.ask(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":%q,"lane":%q,"body":%q,
		"signer":{"type":"hmac-sha256-body","encoding":"base64","prefix":"v1,"}}`, h.mine.URL, lane, body), h.sender(t)...)["id"].(string)
	header := h.arrived(t, h.mine, id)
	secret := func(signer string) []byte {
		t.Helper()
		text := h.ask(t, 200, "GET", "/v1/secret?lane="+lane+signer, "")["secret"].(string)
		key, err := sign.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	forged := http.Header{}
	forged.Set("webhook-id", "msg_1")
	forged.Set("webhook-timestamp", "1700000000")
	for name := range header {
		if strings.HasPrefix(header.Get(name), "v1,") && name != "Webhook-Signature" {
			forged.Set("webhook-signature", header.Get(name))
		}
	}
	if forged.Get("webhook-signature") == "" {
		t.Fatalf("no signature of the body among %v", header)
	}
	if err := sign.Verify("", []sign.Secret{{Key: secret("")}}, forged, nil, []byte("{}"), -1); err == nil {
		t.Error("the signature of a body is a valid one of Standard Webhooks")
	}
	if err := sign.Verify("", []sign.Secret{{Key: secret("&signer=hmac-sha256-body")}}, forged, nil, []byte("{}"), -1); err != nil {
		t.Errorf("what signs bodies is not what the API shows: %v", err)
	}
}

// Case 39: no file of the database has a secret, a credential or an API key in clear; and what is sealed
// arrives in clear.
func TestCase39NoCredentialInSQL(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const secret = "hunter2-"
	send := h.sender(t)
	key := strings.TrimPrefix(send[1], "Bearer ")
	headers := func(name, value string) string { return `"headers":{"` + name + `":"` + secret + value + `"}` }
	victim := h.victim.URL
	root := h.ask(t, 200, "GET", "/v1/secret?lane=m", "")["secret"].(string)
	h.ask(t, 200, "PATCH", "/v1/projects/default", `{`+headers("X-Project-Token", "project")+`,"header_hosts":["`+h.victim.host()+`"]}`)
	h.ask(t, 200, "POST", "/v1/secret/rotate", `{"use":"text","secret":"`+secret+`bearer","hosts":["`+h.victim.host()+`"]}`)
	ep := h.ask(t, 201, "POST", "/v1/endpoints", `{"url":"`+victim+`","signer":"basic","secret":"user:`+secret+`basic",`+headers("X-Endpoint-Token", "endpoint")+`}`)["id"].(string)
	first := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1,`+headers("Cookie", "callback")+`}`)["id"].(string)
	second := h.ask(t, 202, "POST", "/v1/callbacks", `{"url":"`+victim+`","signer":"bearer","payload":1}`)["id"].(string)
	sched := h.ask(t, 201, "POST", "/v1/schedules", `{"name":"s","cron":"@daily","callback":{"url":"`+victim+`","payload":{"a":1},`+headers("X-Password", "schedule")+`}}`)
	if text := fmt.Sprint(sched); strings.Contains(text, secret) || !strings.Contains(text, "***") {
		t.Errorf("the schedule is shown as %s", text)
	}
	run := h.ask(t, 202, "POST", "/v1/schedules/"+sched["id"].(string)+"/run", "")["id"].(string)
	poll := h.ask(t, 202, "POST", "/v1/polls", `{"ref":"r","request":{"url":"`+victim+`",`+headers("X-Api-Key", "poll")+`},
		"until":{"success":[{"status":[200]}]},"on_result":{"url":"`+victim+`",`+headers("Authorization", "result")+`}}`)["id"].(string)
	h.arrived(t, h.victim, poll)
	result := h.ask(t, 200, "GET", "/v1/polls/"+poll, "")["poll"].(map[string]any)["result_callback_id"].(string)
	for id, want := range map[string]string{first: "callback", second: "bearer", run: "schedule", poll: "poll", result: "result"} {
		got := h.arrived(t, h.victim, id)
		if text := fmt.Sprint(got); !strings.Contains(text, secret+want) || !strings.Contains(text, secret+"project") {
			t.Errorf("%s arrived with %s", want, text)
		}
	}
	if got := h.victim.of(first); got.Get("X-Endpoint-Token") != secret+"endpoint" || !strings.HasPrefix(got.Get("Authorization"), "Basic ") {
		t.Errorf("to the endpoint: %v", got)
	}
	rootKey, err := sign.ParseSecret(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(h.file + suffix)
		if err != nil && suffix == "" {
			t.Fatal(err)
		}
		for _, clear := range []string{secret, key, root, string(rootKey)} {
			if strings.Contains(string(content), clear) {
				t.Errorf("d.db%s has %.12q in clear", suffix, clear)
			}
		}
	}
}

// TestAKeysHashIsNoKey, case 45.
func TestAKeysHashIsNoKey(t *testing.T) {
	t.Parallel()
	f := newEngineFace(t, new(receiver))
	hash := sha256.Sum256([]byte(strings.TrimPrefix(f.sender(t)[1], "Bearer ")))
	for _, stolen := range []string{
		hex.EncodeToString(hash[:]), base64.StdEncoding.EncodeToString(hash[:]), string(hash[:]),
	} {
		wantProblem(t, f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+stolen), 401, "unauthorized")
	}
}

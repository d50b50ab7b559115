package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A hostile is the API over an engine that really sends, two servers that note what arrives, and keys of
// little scope.
type hostile struct {
	face
	t            *testing.T
	file         string
	mine, victim *site
}

// A site notes the requests that it gets, by webhook-id.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	got  map[string]http.Header
	body map[string]string
}

func newSite(t *testing.T) *site {
	s := &site{got: make(map[string]http.Header), body: make(map[string]string)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got[r.Header.Get("webhook-id")], s.body[r.Header.Get("webhook-id")] = r.Header, string(body)
	}))
	t.Cleanup(s.Close)
	return s
}

// host is the site's host and port.
func (s *site) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *site) of(id string) (http.Header, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[id], s.body[id]
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	t.Parallel()
	guard, err := outbound.NewGuard([]string{"127.0.0.1/32"})
	if err != nil {
		t.Fatal(err)
	}
	sender, err := outbound.New(outbound.Options{Guard: guard, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.CloseIdle)
	file := filepath.Join(t.TempDir(), "d.db")
	h := &hostile{t: t, file: file, mine: newSite(t), victim: newSite(t)}
	h.face = newEngineFaceOn(t, newDBAt(t, file), sender)
	return h
}

// as makes a key of a scope and returns the header for it.
func (h *hostile) as(scope string) []string {
	h.t.Helper()
	key := h.ask(h.t, 201, "POST", "/v1/keys", `{"name":"`+scope+`","scopes":["`+scope+`"]}`)["key"].(string)
	return []string{"Authorization", "Bearer " + key}
}

// arrived returns what a site got of a callback, which must have succeeded.
func (h *hostile) arrived(at *site, id string) (http.Header, string) {
	h.t.Helper()
	h.settled(h.t, id, "succeeded")
	header, body := at.of(id)
	if header == nil {
		h.t.Fatalf("%s did not arrive", id)
	}
	return header, body
}

// A sender's lane has the form of an address only if it is that of its own address: else it would be signed
// with the secret of another receiver.
func TestSendersGetNoOtherLanesSecrets(t *testing.T) {
	h := newHostile(t)
	send := h.as("send")
	for _, signer := range []string{
		`"standard-v1"`, `"bearer"`, `"hmac-sha256-body"`, `"t-v1"`, `{"type":"sorted-kv","alg":"md5"}`, `"none"`,
	} {
		for _, lane := range []string{"https://victim.example:443", "HTTPS://victim.example:443", "http://victim.example:80"} {
			body := fmt.Sprintf(`{"url":%q,"lane":%q,"signer":%s,"payload":{"a":"1"}}`, h.mine.URL, lane, signer)
			if fields := h.refused(t, "POST", "/v1/callbacks", body, send...); !strings.HasPrefix(strings.Join(fields, " "), "lane") {
				t.Errorf("signer %s in the lane %s: %q", signer, lane, fields)
			}
		}
	}
	h.askAs(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":%q,"lane":%[1]q,"payload":1}`, h.mine.URL), send...)
}

// In a lane of its own a signer cannot make the signature of another: each has a secret of its own.
func TestNoSignerSignsForAnother(t *testing.T) {
	h := newHostile(t)
	const lane = "merchant-7"
	body := "msg_1.1700000000.{}"
	id := h.askAs(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"url":%q,"lane":%q,"body":%q,
		"signer":{"type":"hmac-sha256-body","encoding":"base64","prefix":"v1,"}}`, h.mine.URL, lane, body), h.as("send")...)["id"].(string)
	header, _ := h.arrived(h.mine, id)
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

// Credentials of the project, and private keys that were given to it, are used only where they were given
// for.
func TestCredentialsGoOnlyToTheirHosts(t *testing.T) {
	h := newHostile(t)
	send := h.as("send")
	submit := func(at *site, signer string) string {
		return fmt.Sprintf(`{"url":%q,"signer":%s,"payload":{"a":"1"}}`, at.URL, signer)
	}
	rotate := func(use, secret, hosts string) {
		t.Helper()
		h.ask(t, 200, "POST", "/v1/secret/rotate", fmt.Sprintf(`{"use":%q,"secret":%q%s,"overlap":"0s"}`, use, secret, hosts))
	}
	made, err := sign.NewSecret(sign.UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	pem := sign.FormatSecretFor(sign.UseRSA, made)
	const wechat = `{"type":"wechat-v3-rsa","mchid":"1900009191"}`
	for _, c := range []struct{ signer, use, secret, arrives string }{
		{`"basic"`, "basic", "victim:hunter2", "Basic " + base64.StdEncoding.EncodeToString([]byte("victim:hunter2"))},
		{`"bearer"`, "text", "hunter2-hunter2", "Bearer hunter2-hunter2"},
		{wechat, "rsa", pem, "WECHATPAY2-SHA256-RSA2048 "},
	} {
		rotate(c.use, c.secret, "")
		for _, at := range []*site{h.mine, h.victim} {
			if fields := h.refused(t, "POST", "/v1/callbacks", submit(at, c.signer), send...); len(fields) != 1 || fields[0] != "signer" {
				t.Errorf("%s without hosts: %q", c.signer, fields)
			}
		}
		rotate(c.use, c.secret, `,"hosts":["`+h.victim.host()+`"]`)
		if fields := h.refused(t, "POST", "/v1/callbacks", submit(h.mine, c.signer), send...); len(fields) != 1 || fields[0] != "signer" {
			t.Errorf("%s at another host: %q", c.signer, fields)
		}
		id := h.askAs(t, 202, "POST", "/v1/callbacks", submit(h.victim, c.signer), send...)["id"].(string)
		if header, _ := h.arrived(h.victim, id); !strings.HasPrefix(header.Get("Authorization"), c.arrives) {
			t.Errorf("%s at its host: %q", c.signer, header.Get("Authorization"))
		}
		shown := h.ask(t, 200, "GET", "/v1/secret?use="+c.use, "")
		if hosts, _ := shown["hosts"].([]any); len(hosts) != 1 || hosts[0] != h.victim.host() {
			t.Errorf("%s is shown with the hosts %v", c.use, hosts)
		}
	}
	// A key that is made here signs for every receiver; a credential cannot be for all.
	h.ask(t, 200, "POST", "/v1/secret/rotate", `{"use":"rsa"}`)
	h.arrived(h.mine, h.askAs(t, 202, "POST", "/v1/callbacks", submit(h.mine, wechat), send...)["id"].(string))
	for _, hosts := range []string{`["*"]`, `["a b"]`, `["https://shop.example/"]`} {
		body := `{"use":"basic","secret":"victim:hunter2","hosts":` + hosts + `}`
		if fields := h.refused(t, "POST", "/v1/secret/rotate", body); len(fields) != 1 || fields[0] != "hosts[0]" {
			t.Errorf("hosts %s: %q", hosts, fields)
		}
	}
}

// A key of scope operate can move an endpoint, but not what the endpoint has to show its receiver.
func TestAnEndpointIsNotMovedWithItsCredentials(t *testing.T) {
	h := newHostile(t)
	operate := h.as("operate")
	made := 0
	endpoint := func(more string) (path, external string) {
		t.Helper()
		made++
		external = fmt.Sprintf("m-%d", made)
		ep := h.ask(t, 201, "POST", "/v1/endpoints", fmt.Sprintf(`{"external_id":%q,"url":%q%s}`, external, h.victim.URL, more))
		return "/v1/endpoints/" + ep["id"].(string), external
	}
	moved := func(more string) string { return fmt.Sprintf(`{"url":%q%s}`, h.mine.URL, more) }
	const header, bearer = `,"headers":{"Authorization":"Bearer hunter2"}`, `,"signer":"bearer","secret":"hunter2-hunter2"`
	const newHeader, newSecret = `,"headers":{"X-Token":"mine"}`, `,"secret":"mine-mine-mine"`
	for _, c := range []struct {
		what, has, change string
		status            int
	}{
		{"with a header", header, moved(""), 403},
		{"with a header that is replaced", header, moved(newHeader), 200},
		{"with a token", bearer, moved(""), 403},
		{"with a token that is replaced", bearer, moved(newSecret), 200},
		{"with both, one replaced", header + bearer, moved(newHeader), 403},
		{"with both, the other replaced", header + bearer, moved(newSecret), 403},
		{"with both replaced", header + bearer, moved(newHeader + newSecret), 200},
		{"with neither", "", moved(""), 200},
		{"at the same host", header + bearer, fmt.Sprintf(`{"url":%q}`, h.victim.URL+"/other"), 200},
		{"to be another signer", `,"signer":{"type":"sorted-kv","alg":"md5"},"secret":"hunter2-hunter2"`, `{"signer":"bearer"}`, 403},
		{"to be a signer of bodies", ``, `{"signer":"hmac-sha256-body"}`, 403},
		{"with another secret alone", bearer, `{"secret":"mine-mine-mine"}`, 403},
	} {
		path, external := endpoint(c.has)
		if rec := h.do("PATCH", path, c.change, operate...); rec.Code != c.status {
			t.Errorf("%s: %d %s", c.what, rec.Code, rec.Body)
		}
		if c.status == 403 {
			if !strings.Contains(c.change, "secret") {
				h.askAs(t, 200, "PATCH", path, c.change) // the admin may
			}
			continue
		}
		id := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+external+`","payload":1}`)["id"].(string)
		h.settled(t, id, "succeeded")
		if got, _ := h.mine.of(id); strings.Contains(fmt.Sprint(got), "hunter2") {
			t.Errorf("%s: its receiver got %v", c.what, got)
		}
	}
	// The same by its external id, where everything is said anew.
	_, external := endpoint(bearer)
	put := fmt.Sprintf(`{"url":%q,"signer":"bearer"}`, h.mine.URL)
	if rec := h.do("PUT", "/v1/endpoints/by-external-id/"+external, put, operate...); rec.Code != 403 {
		t.Errorf("replaced elsewhere: %d %s", rec.Code, rec.Body)
	}
	// An address of its own does not make a callback to the endpoint carry more.
	path, external := endpoint(header + `,"url_override":"any"`)
	id := h.askAs(t, 202, "POST", "/v1/callbacks", fmt.Sprintf(`{"endpoint":%q,"url":%q,"payload":1}`, external, h.mine.URL), h.as("send")...)["id"].(string)
	if got, _ := h.arrived(h.mine, id); got.Get("Authorization") != "" {
		t.Errorf("another host got %v", got)
	}
	h.ask(t, 200, "PATCH", path, `{"signer":"bearer","secret":"hunter2-hunter2"}`)
	if fields := h.refused(t, "POST", "/v1/callbacks", fmt.Sprintf(`{"endpoint":%q,"url":%q,"payload":1}`, external, h.mine.URL)); len(fields) != 1 || fields[0] != "url" {
		t.Errorf("a token for another host: %q", fields)
	}
}

// A callback that is sent elsewhere leaves its credentials behind, however it is moved, unless it is given
// new ones.
func TestAMovedCallbackLeavesItsCredentials(t *testing.T) {
	h := newHostile(t)
	operate := h.as("operate")
	ep := h.ask(t, 201, "POST", "/v1/endpoints", fmt.Sprintf(`{"external_id":"m-1","url":%q,"signer":"bearer","secret":"hunter2-hunter2",
		"headers":{"X-Api-Key":"hunter2","X-Shop":"7"}}`, h.victim.URL))["id"].(string)
	plain := fmt.Sprintf(`{"url":%q,"headers":{"Authorization":"Bearer hunter2","X-Shop":"7"},"payload":1,"delay":"1h","ref":"r"}`, h.victim.URL)
	toEndpoint := `{"endpoint":"` + ep + `","headers":{"Cookie":"hunter2"},"payload":1,"delay":"1h","ref":"r"}`
	for _, body := range []string{plain, toEndpoint} {
		for _, how := range []string{"retry", "patch", "redrive", "patch with headers"} {
			id := h.ask(t, 202, "POST", "/v1/callbacks", body)["id"].(string)
			path := "/v1/callbacks/" + id
			switch how {
			case "retry":
				h.askAs(t, 200, "POST", path+"/retry", fmt.Sprintf(`{"url":%q}`, h.mine.URL), operate...)
			case "patch":
				h.askAs(t, 200, "PATCH", path, fmt.Sprintf(`{"url":%q}`, h.mine.URL), operate...)
			case "patch with headers":
				h.askAs(t, 200, "PATCH", path, fmt.Sprintf(`{"url":%q,"headers":{"Authorization":"Bearer mine","X-Shop":"7"}}`, h.mine.URL), operate...)
			case "redrive":
				job := h.askAs(t, 202, "POST", "/v1/redrives", fmt.Sprintf(`{"action":"set_url","url":%q,"filter":{"ref":"r","state":["scheduled"]},"reason":"x"}`, h.mine.URL), operate...)["id"].(string)
				testserver.Until(t, "the redrive is done", func() bool {
					return h.ask(t, 200, "GET", "/v1/redrives/"+job, "")["state"] == "done"
				})
			}
			if how != "retry" {
				h.askAs(t, 200, "POST", path+"/retry", "", operate...)
			}
			got, _ := h.arrived(h.mine, id)
			if strings.Contains(fmt.Sprint(got), "hunter2") || got.Get("X-Shop") != "7" {
				t.Errorf("%s of %.40s: arrived with %v", how, body, got)
			}
			if want := how == "patch with headers"; want != (got.Get("Authorization") == "Bearer mine") {
				t.Errorf("%s of %.40s: arrived with %q", how, body, got.Get("Authorization"))
			}
		}
	}
	// At its own host it keeps them.
	id := h.ask(t, 202, "POST", "/v1/callbacks", plain)["id"].(string)
	h.askAs(t, 200, "POST", "/v1/callbacks/"+id+"/retry", fmt.Sprintf(`{"url":%q}`, h.victim.URL+"/again"), operate...)
	if got, _ := h.arrived(h.victim, id); got.Get("Authorization") != "Bearer hunter2" {
		t.Errorf("at its own host: %v", got)
	}
}

// A project's headers join at the attempt; those that are credentials go to the hosts that were named for
// them.
func TestProjectHeadersJoinAtTheAttempt(t *testing.T) {
	h := newHostile(t)
	h.ask(t, 200, "PATCH", "/v1/projects/default", `{"headers":{"Authorization":"Bearer hunter2","X-Shop":"7"},"header_hosts":["`+h.victim.host()+`"]}`)
	if got := h.ask(t, 200, "GET", "/v1/projects/default", ""); fmt.Sprint(got["header_hosts"]) != "["+h.victim.host()+"]" {
		t.Errorf("header_hosts: %v", got["header_hosts"])
	}
	body := func(at *site, more string) string { return fmt.Sprintf(`{"url":%q,"payload":1%s}`, at.URL, more) }
	send, operate := h.as("send"), h.as("operate")
	for _, c := range []struct {
		at   *site
		more string
		want string
	}{{h.victim, "", "Bearer hunter2"}, {h.mine, "", ""}, {h.victim, `,"headers":{"Authorization":"Bearer own"}`, "Bearer own"}} {
		got := h.askAs(t, 202, "POST", "/v1/callbacks", body(c.at, c.more), send...)
		if header, _ := h.arrived(c.at, got["id"].(string)); header.Get("Authorization") != c.want || header.Get("X-Shop") != "7" {
			t.Errorf("arrived with %v, want %q", header, c.want)
		}
	}
	ep := h.askAs(t, 201, "POST", "/v1/endpoints", fmt.Sprintf(`{"url":%q}`, h.mine.URL), operate...)["id"].(string)
	id := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1}`)["id"].(string)
	if header, _ := h.arrived(h.mine, id); header.Get("Authorization") != "" || header.Get("X-Shop") != "7" {
		t.Errorf("an endpoint of another host got %v", header)
	}
	// What is changed before the attempt is in force at the attempt.
	late := h.askAs(t, 202, "POST", "/v1/callbacks", body(h.victim, `,"delay":"1h"`), send...)["id"].(string)
	h.ask(t, 200, "PATCH", "/v1/projects/default", `{"headers":{"X-Shop":"8"}}`)
	h.askAs(t, 200, "POST", "/v1/callbacks/"+late+"/retry", "", operate...)
	if header, _ := h.arrived(h.victim, late); header.Get("Authorization") != "" || header.Get("X-Shop") != "8" {
		t.Errorf("after the project's headers were changed: %v", header)
	}
}

// Case 39: no file of the database has a secret, a credential or an API key in clear; and what is sealed
// arrives in clear.
func TestCase39NoCredentialInSQL(t *testing.T) {
	h := newHostile(t)
	const secret = "hunter2-"
	send := h.as("send")
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
	h.settled(t, poll, "succeeded")
	result := h.ask(t, 200, "GET", "/v1/polls/"+poll, "")["poll"].(map[string]any)["result_callback_id"].(string)
	for id, want := range map[string]string{first: "callback", second: "bearer", run: "schedule", poll: "poll", result: "result"} {
		got, _ := h.arrived(h.victim, id)
		if text := fmt.Sprint(got); !strings.Contains(text, secret+want) || !strings.Contains(text, secret+"project") {
			t.Errorf("%s arrived with %s", want, text)
		}
	}
	if got, _ := h.victim.of(first); got.Get("X-Endpoint-Token") != secret+"endpoint" || !strings.HasPrefix(got.Get("Authorization"), "Basic ") {
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

// Cases 41, 44 and 45 of the security list.
func TestSecretCases(t *testing.T) {
	h := newHostile(t)
	ep := h.ask(t, 201, "POST", "/v1/endpoints", `{"url":"`+h.mine.URL+`"}`)["id"].(string)
	signatures := func() int {
		t.Helper()
		id := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1}`)["id"].(string)
		header, _ := h.arrived(h.mine, id)
		return len(strings.Fields(header.Get("webhook-signature")))
	}
	for _, c := range []struct {
		what, overlap string
		want          int
	}{{"case 41: during a rotation", "24h", 2}, {"case 41: of one that leaked", "0s", 1}} {
		h.ask(t, 200, "POST", "/v1/endpoints/"+ep+"/rotate_secret", `{"overlap":"`+c.overlap+`"}`)
		if got := signatures(); got != c.want {
			t.Errorf("%s: %d signatures, want %d", c.what, got, c.want)
		}
	}
	for _, size := range []int{23, 65} {
		secret := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, size))
		for path, body := range map[string]string{
			"/v1/endpoints": `{"url":"` + h.mine.URL + `","secret":"` + secret + `"}`, "/v1/secret/rotate": `{"secret":"` + secret + `"}`,
			"/v1/endpoints/" + ep + "/rotate_secret": `{"secret":"` + secret + `"}`,
		} {
			if fields := h.refused(t, "POST", path, body); len(fields) != 1 || fields[0] != "secret" {
				t.Errorf("case 44: a secret of %d bytes at %s: %q", size, path, fields)
			}
		}
	}
	key := strings.TrimPrefix(h.as("read")[1], "Bearer ")
	hash := sha256.Sum256([]byte(key))
	for _, stolen := range []string{hex.EncodeToString(hash[:]), base64.StdEncoding.EncodeToString(hash[:]), string(hash[:])} {
		if rec := h.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+stolen); rec.Code != 401 {
			t.Errorf("case 45: a key's hash is answered with %d", rec.Code)
		}
	}
}

// One signer name may have two kinds of secret: changing between them is a change of the signer.
func TestAPrivateKeyIsNotTakenAlongInSteps(t *testing.T) {
	h := newHostile(t)
	made, err := sign.NewSecret(sign.UseRSA)
	if err != nil {
		t.Fatal(err)
	}
	const rsa2, md5 = `{"signer":{"type":"sorted-kv","alg":"rsa2"}`, `{"signer":{"type":"sorted-kv","alg":"md5"}`
	body := fmt.Sprintf(rsa2+`,"url":%q,"secret":%q}`, h.victim.URL, sign.FormatSecretFor(sign.UseRSA, made))
	path := "/v1/endpoints/" + h.ask(t, 201, "POST", "/v1/endpoints", body)["id"].(string)
	operate := h.as("operate")
	h.askAs(t, 200, "PATCH", path, md5+`}`, operate...)
	h.askAs(t, 200, "PATCH", path, fmt.Sprintf(`{"url":%q}`, h.mine.URL), operate...)
	wantProblem(t, h.do("PATCH", path, rsa2+`}`, operate...), 403, "forbidden")
}

// A callback that follows its endpoint to another host leaves its own credentials behind.
func TestACallbackFollowsItsEndpointWithoutCredentials(t *testing.T) {
	h := newHostile(t)
	ep := h.ask(t, 201, "POST", "/v1/endpoints", `{"url":"`+h.victim.URL+`"}`)["id"].(string)
	id := h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1,"delay":"1h",
		"headers":{"Authorization":"Bearer hunter2","X-Shop":"7"}}`)["id"].(string)
	operate := h.as("operate")
	h.askAs(t, 200, "PATCH", "/v1/endpoints/"+ep, `{"url":"`+h.mine.URL+`"}`, operate...)
	h.askAs(t, 200, "POST", "/v1/callbacks/"+id+"/retry", "", operate...)
	if got, _ := h.arrived(h.mine, id); got.Get("Authorization") != "" || got.Get("X-Shop") != "7" {
		t.Errorf("arrived with %v", got)
	}
	// What the endpoint itself has for the new host is not kept away by what was left out.
	id = h.ask(t, 202, "POST", "/v1/callbacks", `{"endpoint":"`+ep+`","payload":1,"delay":"1h",
		"headers":{"Authorization":"Bearer hunter2"}}`)["id"].(string)
	h.ask(t, 200, "PATCH", "/v1/endpoints/"+ep, `{"url":"`+h.victim.URL+`","headers":{"Authorization":"Bearer victim"}}`)
	h.askAs(t, 200, "POST", "/v1/callbacks/"+id+"/retry", "", operate...)
	if got, _ := h.arrived(h.victim, id); got.Get("Authorization") != "Bearer victim" {
		t.Errorf("after the endpoint was moved back: %v", got)
	}
}

// A change of an endpoint that is refused has not replaced its secret.
func TestARefusedMoveReplacesNoSecret(t *testing.T) {
	h := newHostile(t)
	h.ask(t, 201, "POST", "/v1/endpoints", `{"external_id":"taken","url":"`+h.victim.URL+`"}`)
	ep := h.ask(t, 201, "POST", "/v1/endpoints", `{"url":"`+h.victim.URL+`","signer":"bearer","secret":"hunter2-hunter2"}`)["id"].(string)
	body := `{"url":"` + h.mine.URL + `","secret":"mine-mine-mine","external_id":"taken"}`
	wantProblem(t, h.do("PATCH", "/v1/endpoints/"+ep, body, h.as("operate")...), 409, "exists")
	if now := h.ask(t, 200, "GET", "/v1/secret?endpoint="+ep, ""); now["secret"] != "hunter2-hunter2" {
		t.Errorf("the secret is %v", now["secret"])
	}
}

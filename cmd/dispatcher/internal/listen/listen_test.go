package listen

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Listen Command `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func newReceiver(t *testing.T, term *cmdtest.Terminal, cmd Command) *receiver {
	t.Helper()
	cmd.Addr, cmd.Delay = "127.0.0.1:0", "0s"
	r, err := cmd.receiver(&term.Console)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// post sends a request to a receiver and returns the response.
func post(r *receiver, body string, header http.Header) (int, string) {
	req := httptest.NewRequest(http.MethodPost, "/notify?x=1", strings.NewReader(body))
	req.Header = header
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

func TestListenRespondsInSequencePerID(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, program.Terminal(), Command{Respond: []string{"500", "503", "200"}, Body: "success"})
	for _, step := range []struct {
		id     string
		status int
		answer string
	}{
		{"a", 500, "Internal Server Error"}, {"b", 500, "Internal Server Error"},
		{"a", 503, "Service Unavailable"},
		{"a", 200, "success"}, {"a", 200, "success"}, {"b", 503, "Service Unavailable"},
		{"", 500, "Internal Server Error"},
	} {
		status, answer := post(r, "{}", http.Header{"Webhook-Id": {step.id}})
		if status != step.status || answer != step.answer {
			t.Errorf("%q got %d %q, not %d %q", step.id, status, answer, step.status,
				step.answer)
		}
	}
	for i := range rememberedIDs + 10 {
		r.next(strconv.Itoa(i))
	}
	if len(r.seen) != rememberedIDs || len(r.ids) != rememberedIDs {
		t.Errorf("keeps %d and %d ids", len(r.seen), len(r.ids))
	}
}

func TestListenIsSafeForTheTerminal(t *testing.T) {
	t.Parallel()
	term := program.Terminal()
	r := newReceiver(t, term, Command{Respond: []string{"200"}, Body: "ok", Headers: true})
	body := "a\x1b[2Jb\nc" + strings.Repeat("x", 3*maxPrinted)
	post(r, body, http.Header{"Webhook-Id": {"\x1b]0;t\x07"}, "X-Evil": {"\x1b[31m"}})
	output := term.Stdout.String()
	if strings.ContainsAny(output, "\x1b\x07") {
		t.Errorf("control characters reach the terminal: %q", output)
	}
	cmdtest.Contains(t, output, "more bytes", "X-Evil")
}

// sendTo signs and sends a request with the program's own client, and returns the status of the response.
func sendTo(t *testing.T, r *receiver, signer string, keys ...[]byte) int {
	t.Helper()
	client, err := outbound.New(outbound.Options{Transport: testserver.InProcess{Handler: r}})
	if err != nil {
		t.Fatal(err)
	}
	req := outbound.Request{
		ID: "cb_01JD0000000000000000000001", Number: 1, URL: "http://shop.example/notify?shop=7",
		Method:      "POST",
		ContentType: "application/json", Body: []byte(`{"paid":10000}`), Timeout: time.Minute, Signer: signer,
	}
	for _, key := range keys {
		req.Secrets = append(req.Secrets, sign.Secret{ID: "sec_1", Key: key})
	}
	response := client.Send(t.Context(), req)
	if response.Class == store.ClassSignError || response.Class == store.ClassInvalidRequest {
		t.Fatalf("%s: %s %s", signer, response.Class, response.Error)
	}
	return response.Status
}

// TestListenVerifiesEverySigner sends requests of the program's own client with each kind of secret. listen
// accepts either secret of a rotation, and a public key. It refuses another secret and an unsigned request.
// The options include a nonce and a time, as polls use them. TestSign and TestVerify of package sign try the
// options of all signers.
func TestListenVerifiesEverySigner(t *testing.T) {
	t.Parallel()
	for signer, twoSign := range map[string]bool{
		"standard-v1": true, "standard-v1a": true, "hmac-sha256-body": true, "sorted-kv": false,
		"bearer": false,
		"basic":  false, `{"type": "t-v1", "header": "Stripe-Signature", "key": "written"}`: true,
		`{"type":"sorted-kv","alg":"md5","nonce":"nonce_str","put":{"in":"query","name":"sig"}}`:     false,
		`{"type":"sorted-kv","alg":"rsa2","exclude":["sign"],"sign_type":"RSA2","time":"timestamp"}`: false,
		`{"type":"wechat-v3-rsa","mchid":"1900009191"}`:                                              false,
	} {
		t.Run(signer, func(t *testing.T) {
			t.Parallel()
			use := signtest.UseOf(t, signer)
			current, former := signtest.Secret(t, use, 0), signtest.Secret(t, use, 1)
			term := program.Terminal()
			receiverWith := func(keys ...[]byte) *receiver {
				cmd := Command{Respond: []string{"200"}, Signer: signer}
				for _, key := range keys {
					cmd.Secret = append(cmd.Secret, cmdtest.ReceiverKey(t, use, key))
				}
				return newReceiver(t, term, cmd)
			}
			both, old := receiverWith(former, current), receiverWith(former)
			for range 2 {
				if status := sendTo(t, both, signer, current); status != 200 {
					t.Errorf("a good signature got %d:\n%s", status, term.Stdout.String())
				}
			}
			if status := sendTo(t, old, signer, current); status != 401 {
				t.Errorf("the signature of another secret got %d", status)
			}
			if status := sendTo(t, old, "none"); status != 401 {
				t.Errorf("an unsigned request got %d", status)
			}
			cmdtest.Contains(t, term.Stdout.String(), "signature ok, by secret 2 of 2",
				"signature wrong: no signature matches",
				"signature wrong: signature headers are missing")
			// During a rotation, signers that support two secrets sign with both.
			if status := sendTo(t, old, signer, current, former); (status == 200) != twoSign {
				t.Errorf("a request signed with two secrets got %d", status)
			}
		})
	}
}

// TestListenNamesTheSigner checks the hint in the output for a request of another signer.
func TestListenNamesTheSigner(t *testing.T) {
	t.Parallel()
	for _, signer := range []string{"standard-v1", "standard-v1a", "wechat-v3-rsa"} {
		term := program.Terminal()
		r := newReceiver(t, term, Command{Respond: []string{"200"}, Signer: "bearer",
			Secret: []string{"token-token"}})
		if status := sendTo(t, r, signer, signtest.Secret(t, signtest.UseOf(t, signer), 0)); status != 401 {
			t.Errorf("%s: got %d", signer, status)
		}
		cmdtest.Contains(t, term.Stdout.String(), "looks signed by "+signer+"\n")
	}
}

// TestListenReadsSecretsOfEachForm reads secrets from files and lists. The transcripts have the refused ones.
func TestListenReadsSecretsOfEachForm(t *testing.T) {
	t.Parallel()
	hmac := sign.FormatSecret(signtest.Secret(t, sign.UseHMAC, 0))
	file := cmdtest.WriteFile(t, "secret", hmac+"\r\n")
	private := sign.FormatSecretFor(sign.UseRSA, signtest.Secret(t, sign.UseRSA, 0))
	for _, tc := range []struct {
		signer  string
		secrets []string
		read    int
	}{
		{"", []string{"@" + file}, 1},
		{"", []string{hmac + "," + hmac, hmac}, 3},
		{"bearer", []string{"token,token"}, 1},
		{"wechat-v3-rsa", []string{private}, 1},
		{"none", nil, 0},
		{"", nil, 0},
	} {
		r := newReceiver(t, program.Terminal(),
			Command{Respond: []string{"200"}, Signer: tc.signer, Secret: tc.secrets})
		if len(r.secrets) != tc.read {
			t.Errorf("%s %v: got %+v", tc.signer, tc.secrets, r.secrets)
		}
	}
}

func TestTranscripts(t *testing.T) { program.Transcripts(t) }

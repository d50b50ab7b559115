package sign_test

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestParseSigner(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"standard-v1"`:               "standard-v1",
		`{"type":"standard-v1"}`:      "standard-v1",
		`"none"`:                      "none",
		`{"type":"hmac-sha256-body"}`: "hmac-sha256-body",
		`{"type":"hmac-sha256-body","header":"X-Signature-256","prefix":"sha256=","encoding":"hex","rotation_header":"X-Signature-256-Previous","key":"bytes"}`: "hmac-sha256-body",
		`{"header":"X-Hub-Signature-256","type":"hmac-sha256-body"}`:                                   `{"type":"hmac-sha256-body","header":"X-Hub-Signature-256"}`,
		`{"type":"hmac-sha256-body","prefix":"","encoding":"base64","header":"X-Shopify-Hmac-Sha256"}`: `{"type":"hmac-sha256-body","header":"X-Shopify-Hmac-Sha256","prefix":"","encoding":"base64"}`,
		`{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`:                             `{"type":"hmac-sha256-body","rotation_header":"","key":"written"}`,
		`{"type":"t-v1","header":"Stripe-Signature"}`:                                                  `{"type":"t-v1","header":"Stripe-Signature"}`,
		`{"type":"sorted-kv","alg":"hmac-sha256","exclude":["sign"],"key_suffix":"&key=","case":"upper","skip_empty":true,"put":{"in":"body","name":"sign"},"sign_type":""}`: "sorted-kv",
		`{"type":"sorted-kv","alg":"rsa2","exclude":["sign","sign_type"]}`:                                                                                                   `{"type":"sorted-kv","alg":"rsa2"}`,
		`{"put":{"in":"query"},"type":"sorted-kv","sign_type":"MD5","alg":"md5","key_suffix":"","case":"lower","skip_empty":false,"exclude":[]}`:                             `{"type":"sorted-kv","alg":"md5","exclude":[],"key_suffix":"","case":"lower","skip_empty":false,"put":{"in":"query","name":"sign"},"sign_type":"MD5"}`,
		`{"type":"sorted-kv","put":{"name":"X-Sign","in":"header"}}`:                                                                                                         `{"type":"sorted-kv","put":{"in":"header","name":"X-Sign"}}`,
		`{"type":"sorted-kv","nonce":"","time":"","time_format":"unix"}`:                                                                                                     "sorted-kv",
		`{"time_format":"unix","time":"ts","nonce":"nonce_str","type":"sorted-kv"}`:                                                                                          `{"type":"sorted-kv","nonce":"nonce_str","time":"ts"}`,
		`{"time_format":"unix_ms","time":"ts","type":"sorted-kv","exclude":["ts"]}`:                                                                                          `{"type":"sorted-kv","exclude":["ts"],"time":"ts","time_format":"unix_ms"}`,
		`{"alg":"rsa2","time_format":"datetime","time":"timestamp","sign_type":"RSA2","nonce":"n","type":"sorted-kv"}`:                                                       `{"type":"sorted-kv","alg":"rsa2","sign_type":"RSA2","nonce":"n","time":"timestamp","time_format":"datetime"}`,
		`{"type":"wechat-v3-rsa","mchid":""}`:                                                                                                                                "wechat-v3-rsa",
		`{"mchid":"1900009191","type":"wechat-v3-rsa"}`:                                                                                                                      `{"type":"wechat-v3-rsa","mchid":"1900009191"}`,
	} {
		got, wrong := sign.Parse([]byte(text))
		if wrong != nil || got != want {
			t.Errorf("%s:\n got %s %v\nwant %s", text, got, wrong, want)
		}
		if again := reparse(got); again != got {
			t.Errorf("%s is read again as %s", got, again)
		}
	}
	for want, texts := range map[string][]string{
		"the whole": {`standard-v1`, `"standard-v2"`, `""`, `null`, `["none"]`},
		"type":      {`{}`, `{"type":"x"}`, `{"type":1}`, `{"type":"none","type":"basic"}`},
		"a":         {`{"type":"none","a":1}`},
		"header": {
			`{"type":"standard-v1","header":"X"}`, `{"type":"hmac-sha256-body","header":"webhook-x"}`,
			`{"type":"hmac-sha256-body","header":"X A"}`, `{"type":"hmac-sha256-body","header":"Host"}`,
			`{"type":"hmac-sha256-body","header":"content-type"}`, `{"type":"hmac-sha256-body","header":""}`,
		},
		"prefix":   {`{"type":"hmac-sha256-body","prefix":"é"}`, `{"type":"t-v1","prefix":"x"}`},
		"encoding": {`{"type":"hmac-sha256-body","encoding":"base32"}`},
		"key":      {`{"type":"hmac-sha256-body","key":"text"}`},
		"rotation_header": {
			`{"type":"hmac-sha256-body","rotation_header":"x-signature-256"}`,
			`{"type":"hmac-sha256-body","rotation_header":"a b"}`,
		},
		"alg":        {`{"type":"sorted-kv","alg":"sha1"}`},
		"case":       {`{"type":"sorted-kv","alg":"rsa2","case":"lower"}`, `{"type":"sorted-kv","case":"title"}`},
		"key_suffix": {`{"type":"sorted-kv","alg":"rsa2","key_suffix":""}`},
		"exclude":    {`{"type":"sorted-kv","exclude":"sign"}`},
		"exclude[1]": {`{"type":"sorted-kv","exclude":["a",1]}`},
		"skip_empty": {`{"type":"sorted-kv","skip_empty":"yes"}`},
		"put":        {`{"type":"sorted-kv","put":"body"}`},
		"put.in":     {`{"type":"sorted-kv","put":{"in":"cookie"}}`},
		"put.name": {
			`{"type":"sorted-kv","put":{"name":"a\"b"}}`, `{"type":"sorted-kv","put":{"name":"1a"}}`,
			`{"type":"sorted-kv","put":{"in":"header","name":"webhook-x"}}`,
			`{"type":"sorted-kv","sign_type":"MD5","put":{"name":"sign_type"}}`,
		},
		"put.place": {`{"type":"sorted-kv","put":{"place":"x"}}`},
		"sign_type": {
			`{"type":"sorted-kv","sign_type":"<x>"}`,
			`{"type":"sorted-kv","sign_type":"MD5","put":{"in":"header"}}`,
		},
		"x": {`{"type":"sorted-kv","x":1}`},
		"nonce": {
			`{"type":"sorted-kv","nonce":1}`, `{"type":"sorted-kv","nonce":"a b"}`,
			`{"type":"sorted-kv","nonce":"sign"}`, `{"type":"sorted-kv","nonce":"sign_type"}`,
			`{"type":"sorted-kv","nonce":"X-Sign","put":{"in":"header","name":"X-Sign"}}`,
		},
		"time": {
			`{"type":"sorted-kv","time":"1st"}`, `{"type":"sorted-kv","time":"sig","put":{"name":"sig"}}`,
			`{"type":"sorted-kv","time":"sign_type","sign_type":"MD5"}`,
			`{"type":"sorted-kv","time":"a","nonce":"a"}`,
		},
		"time_format": {
			`{"type":"sorted-kv","time":"t","time_format":"rfc3339"}`,
			`{"type":"sorted-kv","time_format":"x"}`, `{"type":"sorted-kv","time_format":"datetime"}`,
		},
		"mchid": {
			`{"type":"wechat-v3-rsa","mchid":1900009191}`, `{"type":"wechat-v3-rsa","mchid":"19\""}`,
			`{"type":"wechat-v3-rsa","mchid":"a-b"}`,
			`{"type":"wechat-v3-rsa","mchid":"123456789012345678901234567890123"}`,
		},
		"serial_no": {`{"type":"wechat-v3-rsa","serial_no":"x"}`},
	} {
		for _, text := range texts {
			got, wrong := sign.Parse([]byte(text))
			if named := fieldsOf(t, wrong); named != want || (got == "") != (want != "") {
				t.Errorf("%s:\n named %q\nwant %q (%v)", parse.Cut(text, 80), named, want, wrong)
			}
		}
	}
}

func TestSignersAreTold(t *testing.T) {
	t.Parallel()
	want := []string{"standard-v1", "standard-v1a", "hmac-sha256-body", "t-v1", "sorted-kv", "wechat-v3-rsa", "basic", "bearer", "none"}
	if got := sign.Names(); !slices.Equal(got, want) {
		t.Errorf("Signers() = %q", got)
	}
	for i, info := range sign.Infos() {
		if info.Name != want[i] {
			t.Errorf("signer %d is told as %s", i, info.Name)
		}
		use, err := sign.UseOf(info.Name)
		if err != nil || use != info.Use || info.Description == "" || use != "" && !sign.IsUse(use) {
			t.Errorf("%s: use %q, %v; told %q", info.Name, use, err, info.Use)
		}
		// Each option's default is what leaving it out means.
		for _, o := range info.Options {
			def := string(o.Default)
			if o.Name == "exclude" {
				def = `["sign"]`
			}
			text := `{"type":"` + info.Name + `","` + o.Name + `":` + def + `}`
			if got, wrong := sign.Parse([]byte(text)); got != info.Name || o.Description == "" {
				t.Errorf("%s is %s, %v", text, got, wrong)
			}
		}
	}
	for text, want := range map[string]string{
		"": sign.UseHMAC, `{"type":"sorted-kv","alg":"rsa2"}`: sign.UseRSA, `{"type":"sorted-kv","alg":"md5"}`: sign.UseText, `{"type":"t-v1","header":"X-A"}`: sign.UseHMAC,
	} {
		if use, err := sign.UseOf(text); use != want || err != nil {
			t.Errorf("UseOf(%s) = %q, %v", text, use, err)
		}
	}
	for _, text := range []string{"x", "{", `{"type":"x"}`, `"none"`} {
		if use, err := sign.UseOf(text); err == nil {
			t.Errorf("UseOf(%s) = %q", text, use)
		}
	}
}

func TestSignsBody(t *testing.T) {
	t.Parallel()
	for signer, want := range map[string]bool{
		"": false, sign.Standard: false, "none": false, sign.SortedKV: true, `{"type":"sorted-kv","alg":"md5"}`: true,
		`{"type":"sorted-kv","put":{"in":"query","name":"sign"}}`: false,
	} {
		if got := sign.SignsBody(signer); got != want {
			t.Errorf("%s: %v", signer, got)
		}
	}
}

// fieldsOf are the fields that findings are about, in their order. Each finding must say something.
func fieldsOf(t *testing.T, wrong []store.FieldError) string {
	t.Helper()
	var names []string
	for _, w := range wrong {
		names = append(names, cmp.Or(w.Field, "the whole"))
		if w.Message == "" || !parse.IsPlain([]byte(w.Field+w.Message)) {
			t.Errorf("bad finding %q", w)
		}
	}
	return strings.Join(names, " ")
}

// reparse reads what Parse returned.
func reparse(text string) string {
	if !strings.HasPrefix(text, "{") {
		text = `"` + text + `"`
	}
	again, _ := sign.Parse([]byte(text))
	return again
}

func FuzzParseSigner(f *testing.F) {
	for _, signer := range signtest.Every {
		f.Add(signer)
	}
	f.Add(`{"type":"sorted-kv","exclude":["a","b"],"put":{"name":"x","in":"header"}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		text, wrong := sign.Parse([]byte(raw))
		if (text == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", text, wrong)
		}
		if text == "" {
			return
		}
		if again := reparse(text); again != text {
			t.Fatalf("%s is read again as %s", text, again)
		}
		if _, err := sign.UseOf(text); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzVerify: nothing is taken that was not signed.
func FuzzVerify(f *testing.F) {
	f.Add("1614265330", "v1,abc v1a,x t=1614265330,v1=00", `{"sign":"x"}`, "sign=x&sig=y", "application/json")
	f.Add("1", "Basic dXNlcjpwYXNz", "sign=&a=1", "", "")
	f.Fuzz(func(t *testing.T, seconds, signature, body, query, contentType string) {
		h := make(http.Header)
		for _, name := range []string{sign.HeaderID, sign.HeaderSignature, "X-Signature-256", "X-Signature", "X-Sign", "Wechatpay-Signature", "Wechatpay-Nonce", "Authorization"} {
			h.Set(name, signature)
		}
		h.Set(sign.HeaderTimestamp, seconds)
		h.Set("Wechatpay-Timestamp", seconds)
		h.Set("Content-Type", contentType)
		for _, signer := range signtest.Every {
			use := signtest.UseOf(t, signer)
			if err := sign.Verify(signer, signtest.Secrets(signtest.Secret(t, use, 0)), h, &url.URL{RawQuery: query}, []byte(body), -1); err == nil {
				t.Fatalf("%s: forged", signer)
			}
		}
	})
}

package sign

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// The headers of WeChat Pay v3, and the scheme of Authorization in requests to it.
const (
	weChatTimestamp = "Wechatpay-Timestamp"
	weChatNonce     = "Wechatpay-Nonce"
	weChatSignature = "Wechatpay-Signature"
	weChatSerial    = "Wechatpay-Serial"
	weChatType      = "Wechatpay-Signature-Type"
	weChatTypeValue = "WECHATPAY2-SHA256-RSA2048"
)

// weChatText is what WeChat Pay v3 signs in its notifications.
func weChatText(seconds, nonce string, body []byte) string {
	return seconds + "\n" + nonce + "\n" + string(body) + "\n"
}

// weChatTarget stands before weChatText in a merchant's request.
func weChatTarget(method string, u *url.URL) string {
	return method + "\n" + u.RequestURI() + "\n"
}

// signWeChatV3 signs as the platform signs its notifications or, with mchid, as a merchant signs its requests to it.
func (c *Cache) signWeChatV3(s *signer, r *Request) (Signature, error) {
	present := &r.Secrets[0]
	key, err := c.rsaKey(present.Key)
	if err != nil {
		return Signature{}, err
	}
	nonce := rand.Text()
	text := weChatText(r.Seconds, nonce, r.Body)
	if s.mchid != "" {
		text = weChatTarget(r.Method, r.URL) + text
	}
	value, err := signSHA256(key, text)
	if err != nil {
		return Signature{}, err
	}
	serial := present.Label
	if serial == "" {
		serial = present.ID
	}
	if !parse.IsPrintable(serial) || s.mchid != "" && strings.ContainsAny(serial, `"\,`) {
		return Signature{}, &KeyError{"the signing key's label cannot stand in a header"}
	}
	out := Signature{KeyID: present.ID, Hidden: []string{value}}
	if s.mchid != "" {
		out.Headers = []addedHeader{{"Authorization", fmt.Sprintf(`%s mchid="%s",nonce_str="%s",signature="%s",timestamp="%s",serial_no="%s"`,
			weChatTypeValue, s.mchid, nonce, value, r.Seconds, serial), true}}
		return out, nil
	}
	out.Headers = []addedHeader{
		{weChatTimestamp, r.Seconds, false}, {weChatNonce, nonce, false}, {weChatSerial, serial, false},
		{weChatType, weChatTypeValue, false}, {weChatSignature, value, true},
	}
	return out, nil
}

func verifyWeChatV3(secrets []Secret, h http.Header, body []byte, tolerance time.Duration) error {
	seconds, nonce, signature := h.Get(weChatTimestamp), h.Get(weChatNonce), h.Get(weChatSignature)
	for _, need := range [...][2]string{{weChatTimestamp, seconds}, {weChatNonce, nonce}, {weChatSignature, signature}} {
		if need[1] == "" {
			return fmt.Errorf("%w: no %s", ErrHeaders, strings.ToLower(need[0]))
		}
	}
	if err := checkSeconds(seconds, weChatTimestamp, tolerance); err != nil {
		return err
	}
	return verifyRSA(secrets, weChatText(seconds, nonce, body), signature)
}

// verifyMerchant verifies a merchant's request. It is not told the method, and looks for the one that was signed.
func (s *signer) verifyMerchant(secrets []Secret, h http.Header, u *url.URL, body []byte, tolerance time.Duration) error {
	given, ok := strings.CutPrefix(h.Get("Authorization"), weChatTypeValue+" ")
	if !ok {
		return fmt.Errorf("%w: no authorization of %s", ErrHeaders, weChatTypeValue)
	}
	params := make(map[string]string)
	for param := range strings.SplitSeq(given, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		params[name] = strings.Trim(value, `"`)
	}
	for _, name := range [...]string{"mchid", "nonce_str", "signature", "timestamp"} {
		if params[name] == "" {
			return fmt.Errorf("%w: no %s in authorization", ErrHeaders, name)
		}
	}
	if err := checkSeconds(params["timestamp"], "Authorization", tolerance); err != nil {
		return err
	}
	if params["mchid"] != s.mchid {
		return fmt.Errorf("%w: mchid is another one", ErrSignature)
	}
	if u == nil {
		u = new(url.URL)
	}
	text := weChatText(params["timestamp"], params["nonce_str"], body)
	for _, method := range [...]string{http.MethodPost, http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if err := verifyRSA(secrets, weChatTarget(method, u)+text, params["signature"]); !errors.Is(err, ErrSignature) {
			return err
		}
	}
	return ErrSignature
}

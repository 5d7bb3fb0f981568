/* SPDX-License-Identifier: Apache-2.0 */

/* Loads the visible fragment of a page again, and keeps place and focus;
 * counts down what expires, by the clock of the server. */
(function () {
  'use strict';

  var TIMEOUT_MS = 10000;
  var EDITABLE = 'input:not([type=submit]):not([type=button]), select, textarea';
  var loading = false;

  function fragments() {
    return Array.prototype.slice.call(
      document.querySelectorAll('.interference-fragment'));
  }

  function isVisible(element) {
    return element.offsetParent !== null;
  }

  /* When a fragment was made: by its own clock, and by that of the page. */
  function made(fragment) {
    if (!fragment.interferenceMadeMs) {
      fragment.interferenceMadeMs = Date.parse(
        fragment.getAttribute('data-loaded-at'));
      fragment.interferenceSeenMs = performance.now();
      fragment.interferenceTriedMs = performance.now();
    }
    return fragment.interferenceMadeMs;
  }

  function ageMs(fragment) {
    made(fragment);
    return performance.now() - fragment.interferenceSeenMs;
  }

  function duration(seconds) {
    var parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
    var text = [];
    seconds = Math.max(0, Math.round(seconds));
    parts.forEach(function (part) {
      var count = Math.floor(seconds / part[0]);
      if (text.length < 2 && (count || text.length || part[0] === 1)) {
        text.push(count + ' ' + part[1]);
        seconds -= count * part[0];
      }
    });
    return text.join(' ');
  }

  function tellTimes(fragment) {
    var nowMs = made(fragment) + ageMs(fragment);
    var ago = fragment.querySelector('.interference-ago');
    if (ago) {
      ago.textContent = ago.getAttribute('data-text').replace(
        '%s', duration(ageMs(fragment) / 1000));
    }
    fragment.querySelectorAll('[data-expires-at]').forEach(function (element) {
      var leftMs = Date.parse(element.getAttribute('data-expires-at')) - nowMs;
      element.textContent = leftMs > 0 ? duration(leftMs / 1000)
        : element.getAttribute('data-expired');
    });
  }

  function isBusy(fragment) {
    var focused = document.activeElement;
    return document.body.classList.contains('modal-open') ||
      (focused && fragment.contains(focused) && focused.matches(EDITABLE)) ||
      fragment.querySelector('form[data-changed]') !== null ||
      String(window.getSelection()).length > 0;
  }

  function tellStale(fragment, why) {
    var stale = fragment.querySelector('.interference-stale');
    if (stale) {
      stale.textContent = stale.getAttribute('data-' + why);
      stale.hidden = false;
    }
  }

  function keyOf(element) {
    return element && element.getAttribute('data-key');
  }

  function byKey(fragment, key) {
    return fragments().length && key && Array.prototype.slice.call(
      fragment.querySelectorAll('[data-key]')).filter(function (element) {
      return keyOf(element) === key;
    })[0];
  }

  /* Put a new fragment in place of an old one: what is open stays open, what
   * has the focus keeps it, and nothing moves. */
  function replace(old, fresh) {
    var focused = document.activeElement;
    var key = old.contains(focused) ? keyOf(focused) : null;
    var top = window.pageYOffset;
    var left = Array.prototype.slice.call(
      old.querySelectorAll('.table-responsive')).map(function (element) {
      return element.scrollLeft;
    });
    old.querySelectorAll('details[data-key]').forEach(function (details) {
      var same = byKey(fresh, keyOf(details));
      if (same) {
        same.open = details.open;
      }
    });
    old.parentNode.replaceChild(fresh, old);
    fresh.querySelectorAll('.table-responsive').forEach(function (element, i) {
      element.scrollLeft = left[i] || 0;
    });
    if (key && byKey(fresh, key)) {
      byKey(fresh, key).focus({preventScroll: true});
    }
    window.scrollTo(window.pageXOffset, top);
    tellTimes(fresh);
  }

  function load(fragment) {
    var stop = new AbortController();
    var timer = setTimeout(function () { stop.abort(); }, TIMEOUT_MS);
    loading = true;
    fragment.interferenceTriedMs = performance.now();
    fetch(fragment.getAttribute('data-refresh-url'), {
      credentials: 'same-origin', redirect: 'error', signal: stop.signal,
      headers: {'X-Requested-With': 'XMLHttpRequest'}
    }).then(function (response) {
      if (response.status === 401 || response.status === 403) {
        tellStale(fragment, 'expired');
        return null;
      }
      if (!response.ok) {
        throw new Error(response.status);
      }
      return response.text();
    }).then(function (text) {
      if (text === null || !fragment.isConnected || isBusy(fragment)) {
        return;
      }
      var fresh = new DOMParser().parseFromString(text, 'text/html')
        .querySelector('.interference-fragment');
      if (!fresh) {
        throw new Error('no fragment');
      }
      if (fresh.hasAttribute('data-problem') &&
          !fragment.hasAttribute('data-problem')) {
        tellStale(fragment, 'failed');
        return;
      }
      replace(fragment, document.importNode(fresh, true));
    }).catch(function () {
      if (fragment.isConnected) {
        tellStale(fragment, 'failed');
      }
    }).then(function () {
      clearTimeout(timer);
      loading = false;
    });
  }

  function turn() {
    if (document.hidden) {
      return;
    }
    fragments().filter(isVisible).forEach(function (fragment) {
      tellTimes(fragment);
      var everyMs = 1000 * fragment.getAttribute('data-refresh-s');
      if (!loading && fragment.hasAttribute('data-refresh-url') &&
          performance.now() - fragment.interferenceTriedMs >= everyMs &&
          !isBusy(fragment)) {
        load(fragment);
      }
    });
  }

  /* A filter that was changed and not sent is not thrown away. */
  document.addEventListener('input', function (event) {
    var form = event.target.closest && event.target.closest(
      '.interference-fragment form');
    if (form) {
      form.setAttribute('data-changed', '');
    }
  });

  /* The address of the page is that of the tab: for bookmarks. */
  document.addEventListener('click', function (event) {
    var link = event.target.closest && event.target.closest(
      '#interference > li > a[data-toggle=tab]');
    if (link && window.history.replaceState) {
      window.history.replaceState(null, '', link.getAttribute('href'));
    }
  });

  document.addEventListener('visibilitychange', turn);
  setInterval(turn, 1000);
}());
